"""One request, in part decided by the store and in part in this gateway: joined and split again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.limiter.outcome import Outcome
from gateway.limiter.parts import LocalPart, join, local_outcome, split
from gateway.limits.decision import Decision, combine
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from tests.limiter.local.bench import rule

DECISIONS = st.builds(
    Decision,
    allowed=st.just(True),
    wait_us=st.integers(0, 9),
    retry_after_us=st.just(0),
    limit=st.integers(1, 9),
    remaining=st.integers(0, 9),
    reset_us=st.integers(1, 9),
    receipt=st.integers(0, 9),
)
PARTS = st.lists(st.tuples(st.booleans(), DECISIONS), min_size=1, max_size=5)


@given(parts=PARTS)
def test_what_was_joined_is_split_again(parts: list[tuple[bool, Decision]]) -> None:
    """Both parts come out as they went in; joined, they are in the order of the rules."""
    rules = [rule(Limit(1, 1_000_000, 1, scope=f"p{n}"), None) for n in range(len(parts))]
    taken = [
        LocalPart(one, f"k{n}", decision)
        for n, (one, (is_near, decision)) in enumerate(zip(rules, parts, strict=True))
        if is_near
    ]
    theirs = [n for n, (is_near, _) in enumerate(parts) if not is_near]
    limits, keys = (rules[n].limit for n in theirs), (f"k{n}" for n in theirs)
    ask = Ask(tuple(limits), tuple(keys), 1, 0)
    verdict = combine(tuple(parts[n][1] for n in theirs))
    far = Outcome(verdict, tuple(rules[n] for n in theirs), None, False, ask)
    whole = join(far, rules, taken)
    if taken:
        assert list(whole.rules) == rules
        assert list(whole.ask.keys) == [f"k{n}" for n in range(len(parts))]
        assert list(whole.verdict.decisions) == [decision for _, decision in parts]
        assert whole.near == tuple(n for n, (is_near, _) in enumerate(parts) if is_near)
    assert split(whole) == (far, taken)


def test_where_no_store_is_asked_all_of_it_is_near() -> None:
    """The verdict is that of the gateway's own decisions."""
    one = rule(Limit(1, 1_000_000, 1, scope="p"), None)
    decision = Decision(True, 5, 0, 1, 0, 7, 0)
    outcome = local_outcome(Ask((), (), 1, 0), [one], [LocalPart(one, "k", decision)])
    assert (outcome.verdict.wait_us, outcome.near, outcome.ask.keys) == (5, (0,), ("k",))


def test_what_a_closed_policy_refuses_stays_refused() -> None:
    """What was decided here is no part of a refusal for want of the store."""
    one = rule(Limit(1, 1_000_000, 1, scope="p"), None)
    ask = Ask((), (), 1, 0)
    closed = Outcome(combine(()), (), one.policy, True, ask)
    assert join(closed, [one], [LocalPart(one, "k", Decision(True, 0, 0, 1, 0, 1, 0))]) is closed
