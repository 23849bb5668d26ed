"""Which keys a policy is enforced for, and what is asked apart."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from gateway.limiter.outcome import Outcome
from gateway.limiter.plan import CompiledPolicy, Rule
from gateway.limiter.trial import Trials, is_enforced
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.limits.rate import Limit
from gateway.observe.metrics import PolicyMetrics
from gateway.stores.base import Ask

PARTS: Final = st.integers(0, PARTS_PER_WHOLE)
KEYS: Final = st.text(max_size=8)


def _rule(name: str, parts: int, number: int = 0) -> Rule:
    policy = CompiledPolicy(
        *(name, 0, 429, "none", "local"),
        draft_headers=False,
        legacy_headers=False,
        metrics=PolicyMetrics(),
        enforced_parts=parts,
    )
    return Rule(policy, Limit(1, 10**6, 1, scope=f"{name}/{number}"), str, name, "ip")


def _never(_ask: Ask, _rules: object) -> Outcome:
    raise AssertionError("nothing is decided here")


@given(st.text(max_size=8), KEYS, PARTS, PARTS)
def test_a_larger_share_contains_a_smaller_one(name: str, key: str, one: int, two: int) -> None:
    """Nobody for whom it is enforced is let off when the share grows."""
    less, more = sorted((one, two))

    assert is_enforced(name, key, more) or not is_enforced(name, key, less)
    assert is_enforced(name, key, PARTS_PER_WHOLE)
    assert not is_enforced(name, key, 0)


def test_a_share_is_about_what_it_says() -> None:
    """Of many keys, a fifth is in a share of a fifth; another policy has other keys."""
    fifth = PARTS_PER_WHOLE // 5
    found = {key for key in map(str, range(10_000)) if is_enforced("a", key, fifth)}
    others = {key for key in map(str, range(10_000)) if is_enforced("b", key, fifth)}

    assert 1_800 < len(found) < 2_200
    assert 300 < len(found & others) < 500


@given(st.lists(st.tuples(st.sampled_from("abcd"), KEYS), min_size=1, max_size=6), st.data())
def test_every_limit_is_in_one_part(limits: list[tuple[str, str]], data: st.DataObject) -> None:
    """What is enforced is asked together, the rest policy by policy; nothing is lost or doubled."""
    shares = {name: data.draw(PARTS) for name, _ in limits}
    made = {name: _rule(name, parts) for name, parts in shares.items()}
    rules = tuple(
        made[name]._replace(limit=Limit(1, 10**6, 1, scope=f"{name}/{place}"))
        for place, (name, _) in enumerate(limits)
    )
    ask = Ask(tuple(rule.limit for rule in rules), tuple(key for _, key in limits), 1, 5)
    trials = Trials(_never)
    split = trials.split(ask, rules)
    parts = [*([split.enforced] if split.enforced else []), *split.tried]

    told = [pair for part in parts for pair in zip(part.ask.limits, part.ask.keys, strict=True)]
    assert sorted(told, key=str) == sorted(zip(ask.limits, ask.keys, strict=True), key=str)
    for part in parts:
        assert [rule.limit for rule in part.rules] == [*part.ask.limits]
        assert (part.ask.cost, part.ask.max_wait_us) == (1, 5)
    for part in split.tried:
        assert len({rule.policy.name for rule in part.rules}) == 1
    first = dict(reversed(limits))
    enforced = {name for name in shares if is_enforced(name, first[name], shares[name])}
    found = {rule.policy.name for rule in split.enforced.rules} if split.enforced else set()
    assert found == enforced
    again = trials.split(ask, rules)
    assert [one.ask.limits for one in again.tried] == [one.ask.limits for one in split.tried]
    assert all(
        mine.ask.limits is its.ask.limits
        for mine, its in zip(again.tried, split.tried, strict=True)
    )
