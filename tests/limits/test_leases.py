"""The laws of concurrency: never more in flight than the limit, and nothing is held for ever."""

from __future__ import annotations

from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.limits import ALGORITHMS
from gateway.limits.leases import State, expires_us, give_back, renew
from gateway.limits.rate import Limit

decide = ALGORITHMS["concurrency"].decide

START_US: Final = 1_800_000_000_000_000
LEASE_US: Final = 20


class Holders(RuleBasedStateMachine):
    """Requests that take slots, renew them, release them, or are never heard of again."""

    limit = Limit(5, LEASE_US, 5, "concurrency")

    def __init__(self) -> None:
        super().__init__()
        self.state: State | None = None
        self.now_us = START_US
        self.held: dict[int, tuple[int, int]] = {}
        self.gone: list[int] = []

    def in_flight(self) -> int:
        """What is held now, by the model."""
        return sum(cost for expires, cost in self.held.values() if expires > self.now_us)

    @rule(cost=st.integers(0, 6))
    def ask(self, cost: int) -> None:
        """A request passes exactly if there is room; its lease has an id of its own."""
        known = self.state is not None
        after, decision = decide(self.state, self.now_us, cost, self.limit, 10**6)
        used = self.in_flight()
        assert decision.allowed == (cost == 0 or used + cost <= 5)
        assert decision.wait_us == 0
        if decision.allowed or known:
            self.state = after
        if decision.allowed and cost:
            assert decision.receipt not in self.held
            assert decision.receipt not in self.gone
            self.held[decision.receipt] = (self.now_us + LEASE_US, cost)
        assert decision.remaining == 5 - self.in_flight()

    @rule(us=st.integers(0, LEASE_US + 1))
    def pass_time(self, us: int) -> None:
        """Leases expire by themselves."""
        self.now_us += us

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A slot is free at once, and releasing it twice frees nothing of others."""
        lease_id = data.draw(st.sampled_from(sorted(self.held)))
        _, cost = self.held.pop(lease_id)
        self.gone.append(lease_id)
        self.state = give_back(self.state, self.now_us, cost, self.limit, lease_id)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def release_again(self, data: st.DataObject) -> None:
        """Nobody's slot is freed."""
        lease_id = data.draw(st.sampled_from(self.gone))
        self.state = give_back(self.state, self.now_us, 1, self.limit, lease_id)
        assert not renew(self.state, self.now_us, 1, self.limit, lease_id)[1]

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """What is still held is held for another lease; what has expired is lost."""
        lease_id = data.draw(st.sampled_from(sorted(self.held)))
        expires, cost = self.held[lease_id]
        self.state, is_held = renew(self.state, self.now_us, cost, self.limit, lease_id)
        assert is_held == (expires > self.now_us)
        if is_held:
            self.held[lease_id] = (self.now_us + LEASE_US, cost)

    @precondition(lambda self: self.state is not None)
    @rule()
    def forget(self) -> None:
        """A store forgets a state as soon as it may."""
        if self.state is not None and expires_us(self.state, self.limit) <= self.now_us:
            self.state = None

    @invariant()
    def never_more_than_the_limit(self) -> None:
        """At no time are there more in flight than may be."""
        assert self.in_flight() <= 5

    @invariant()
    def what_is_said_comes_true(self) -> None:
        """A refused request passes when its retry_after says, and the limit is unused at reset."""
        state, decision = decide(self.state, self.now_us, 5, self.limit, 0)
        if not decision.allowed:
            then_us = self.now_us + decision.retry_after_us
            assert not decide(state, then_us - 1, 5, self.limit, 0)[1].allowed
            assert decide(state, then_us, 5, self.limit, 0)[1].allowed
            assert decision.reset_us == decision.retry_after_us


TestHolders = Holders.TestCase
TestHolders.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_crashed_holder_frees_its_slot_after_a_lease() -> None:
    """Not a microsecond earlier, and its late release then takes nothing from the next holder."""
    limit = Limit(1, 60_000_000, 1, "concurrency")
    state, first = decide(None, START_US, 1, limit, 0)
    state, refused = decide(state, START_US + 1, 1, limit, 0)
    assert refused.retry_after_us == 60_000_000 - 1
    state, second = decide(state, START_US + 60_000_000, 1, limit, 0)
    assert second.allowed
    assert give_back(state, START_US + 60_000_001, 1, limit, first.receipt) == state
    assert not renew(state, START_US + 60_000_001, 1, limit, first.receipt)[1]


def test_a_shorter_lease_holds_at_once() -> None:
    """A request with a lease of an hour expires after the minute that applies now."""
    hour = Limit(1, 3_600_000_000, 1, "concurrency")
    minute = Limit(1, 60_000_000, 1, "concurrency")
    state, _ = decide(None, START_US, 1, hour, 0)
    state, refused = decide(state, START_US + 5, 1, minute, 0)
    assert refused.retry_after_us == 60_000_000
    assert decide(state, START_US + 5 + 60_000_000, 1, minute, 0)[1].allowed


def test_no_id_is_given_twice_in_one_microsecond() -> None:
    """Taken, released and taken again at once: the first holder's second release is harmless."""
    limit = Limit(1, 60_000_000, 1, "concurrency")
    state, first = decide(None, START_US, 1, limit, 0)
    released = give_back(state, START_US, 1, limit, first.receipt)
    state, second = decide(released, START_US, 1, limit, 0)
    assert second.allowed
    assert second.receipt != first.receipt
    assert give_back(state, START_US, 1, limit, first.receipt) == state
