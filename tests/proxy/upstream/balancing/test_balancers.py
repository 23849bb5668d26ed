"""Laws of the four balancers: shares by weight, smoothness, and few keys that move."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from math import gcd
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.upstream.balancing import (
    SCALE,
    Balancer,
    Candidate,
    ConsistentHash,
    LeastRequests,
    RandomTwo,
    RoundRobin,
)

WEIGHTS: Final = st.lists(st.integers(1, 20), min_size=1, max_size=8)
NAMES: Final = [f"10.0.0.{number}:80" for number in range(9)]
KEYS: Final = [f"user-{number}" for number in range(60)]


class Fleet:
    """Candidates with these weights, and the requests that each has in flight."""

    def __init__(self, weights: Sequence[int], names: Sequence[str] = ()) -> None:
        self.in_flight = [0] * len(weights)
        self.candidates = [
            Candidate(index, name, weight, self._load_of(index))
            for index, (name, weight) in enumerate(zip(names or NAMES, weights, strict=False))
        ]

    def _load_of(self, index: int) -> Callable[[], int]:
        return lambda: self.in_flight[index]


def picks(balancer: Balancer, fleet: Fleet, count: int) -> list[int]:
    """Whom so many requests go to, one after the other."""
    return [balancer.pick(fleet.candidates, None).index for _ in range(count)]


@given(WEIGHTS, st.integers(0, 200))
def test_round_robin_gives_each_its_exact_share(weights: list[int], begin: int) -> None:
    """In any row as long as the weights together, wherever it begins."""
    total = sum(weights)
    row = picks(RoundRobin(), Fleet(weights), begin + total)[begin:]

    assert [row.count(index) for index in range(len(weights))] == weights


@given(WEIGHTS)
def test_round_robin_is_smooth(weights: list[int]) -> None:
    """At any moment, none is ahead of or behind its share by more than one turn or two."""
    total = sum(weights)
    seen = Counter[int]()
    for number, index in enumerate(picks(RoundRobin(), Fleet(weights), 2 * total), 1):
        seen[index] += 1
        for one, weight in enumerate(weights):
            assert abs(seen[one] - number * weight / total) < 2


def test_round_robin_is_interleaved_as_nginx_does() -> None:
    """Weights 5, 1, 1: never five in a row."""
    assert picks(RoundRobin(), Fleet([5, 1, 1]), 7) == [0, 0, 1, 0, 2, 0, 0]


@given(st.integers(2, 9))
def test_round_robin_of_equals_is_plain(count: int) -> None:
    """Each in turn, in order."""
    assert picks(RoundRobin(), Fleet([3] * count), 2 * count) == [*range(count)] * 2


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 50)), min_size=1, max_size=8))
def test_least_requests_takes_the_least_busy(targets: list[tuple[int, int]]) -> None:
    """No target has fewer requests for its weight than the chosen one."""
    fleet = Fleet([weight for weight, _ in targets])
    fleet.in_flight = [count for _, count in targets]
    chosen = LeastRequests().pick(fleet.candidates, None).index
    weight, count = targets[chosen]

    assert all(count * other <= its * weight for other, its in targets)


@given(WEIGHTS)
def test_least_requests_fills_targets_by_weight(weights: list[int]) -> None:
    """Requests that do not end are spread by weight."""
    fleet = Fleet(weights)
    balancer = LeastRequests()
    for _ in range(3 * sum(weights)):
        fleet.in_flight[balancer.pick(fleet.candidates, None).index] += 1

    unit = gcd(*weights)
    for weight, count in zip(weights, fleet.in_flight, strict=True):
        assert abs(count - 3 * weight) <= len(weights) * max(1, weight // unit)


def test_least_requests_of_the_idle_take_turns() -> None:
    """If all are idle, this is round robin by weight."""
    assert picks(LeastRequests(), Fleet([3, 1]), 8) == [0, 0, 1, 0, 0, 0, 1, 0]


@given(WEIGHTS, st.randoms(use_true_random=False))
def test_random_two_chooses_somebody(weights: list[int], chance: random.Random) -> None:
    """And, of any two, never the busier."""
    fleet = Fleet(weights)
    fleet.in_flight[0] = 1_000_000
    chosen = {*picks(RandomTwo(chance.random), fleet, 20)}

    assert chosen <= {*range(len(weights))}
    assert len(weights) == 1 or 0 not in chosen


@pytest.mark.parametrize("edge", [0.0, 1 - 2**-53])
def test_random_two_at_the_edges_of_chance(edge: float) -> None:
    """The lowest and the highest number that dice give draw two different targets."""
    fleet = Fleet([1, 1])
    for busy in (0, 1):
        fleet.in_flight = [0, 0]
        fleet.in_flight[busy] = 1
        assert picks(RandomTwo(lambda: edge), fleet, 1) == [1 - busy]


def test_random_two_draws_by_weight() -> None:
    """Idle targets have about their share: of 4,000 draws, within six standard deviations."""
    weights = [1, 2, 5]
    seen = Counter(picks(RandomTwo(random.Random(7).random), Fleet(weights), 4_000))

    # Of two idle ones, the first drawn is taken.
    for index, weight in enumerate(weights):
        share = weight / sum(weights)
        assert abs(seen[index] - 4_000 * share) < 6 * (4_000 * share * (1 - share)) ** 0.5


def homes(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Which target each key has, by the target's place."""
    balancer = ConsistentHash()
    return {key: f"{balancer.pick(candidates, key).seed:x}" for key in KEYS}


@given(WEIGHTS, st.data())
def test_a_target_that_goes_moves_only_its_keys(weights: list[int], data: st.DataObject) -> None:
    """All others stay where they are; and when it comes back, so do its keys."""
    candidates = Fleet([*weights, 3]).candidates
    gone = data.draw(st.sampled_from(candidates))
    before = homes(candidates)
    after = homes([candidate for candidate in candidates if candidate is not gone])

    for key, home in before.items():
        assert (after[key] == home) == (home != f"{gone.seed:x}")
    assert homes(candidates) == before


@given(WEIGHTS, st.integers(1, 999))
def test_a_target_that_grows_only_takes_keys(weights: list[int], part: int) -> None:
    """During a slow start no key goes from one of the others to another."""
    candidates = Fleet([*weights, 7]).candidates
    growing = candidates[-1]
    growing.weight = growing.full_weight * part // SCALE or 1
    before = homes(candidates)
    growing.weight = growing.full_weight
    after = homes(candidates)

    for key, home in before.items():
        assert after[key] in {home, f"{growing.seed:x}"}


@given(st.permutations([0, 1, 2, 3]))
def test_gateways_agree_in_whatever_order_targets_stand(order: list[int]) -> None:
    """A key's home depends on names and weights alone."""
    names, weights = ["a:1", "b:1", "c:1", "d:1"], [1, 2, 3, 4]
    shuffled = Fleet([weights[one] for one in order], [names[one] for one in order])

    assert homes(shuffled.candidates) == homes(Fleet(weights, names).candidates)


def test_keys_are_spread_by_weight() -> None:
    """Of 6,000 keys each target has its share, within six standard deviations."""
    weights = [1, 2, 5]
    fleet = Fleet(weights)
    balancer = ConsistentHash()
    seen = Counter(balancer.pick(fleet.candidates, f"key {n}").index for n in range(6_000))

    for index, weight in enumerate(weights):
        share = weight / sum(weights)
        assert abs(seen[index] - 6_000 * share) < 6 * (6_000 * share * (1 - share)) ** 0.5


def test_requests_without_a_key_take_turns() -> None:
    """A hash has nothing to go by."""
    assert picks(ConsistentHash(), Fleet([1, 1]), 4) == [0, 1, 0, 1]
