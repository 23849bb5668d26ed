"""The fields that tell of limits: valid, true, and enough for a client that obeys them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.answer import retry_after_s, seconds_up
from gateway.http.limit_fields import LimitFields
from gateway.limiter.plan import Rule
from gateway.limits import ALGORITHMS
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.notation import parse_limit
from gateway.limits.rate import Limit
from tests.http.limits import SECOND_US, fields_of, parse_list, policy, rule

LIMITS = st.builds(
    Limit,
    count=st.integers(1, 10**6),
    period_us=st.integers(1000, 86_400 * SECOND_US),
    burst=st.integers(1, 10**5),
)


@given(
    limits=st.lists(
        st.tuples(LIMITS, st.booleans(), st.booleans(), st.text(max_size=8)), min_size=1, max_size=3
    ),
    times=st.lists(st.integers(0, 10**7), min_size=1, max_size=12),
    cost=st.integers(1, 5),
)
def test_fields_hold_what_was_decided(
    limits: list[tuple[Limit, bool, bool, str]], times: list[int], cost: int
) -> None:
    """For every history of every limits: valid fields, true numbers, and never a false hope."""
    rules = [
        rule(limit, policy(draft=draft, legacy=legacy), title)
        for limit, draft, legacy, title in limits
    ]
    made = LimitFields(rules)
    of_tiers = LimitFields([rule(parse_limit("7/s").limit)], is_tiered=True)
    states: list[int | None] = [None] * len(rules)
    now = 0
    for passed in times:
        now += passed
        results = [
            ALGORITHMS[each.limit.algorithm].decide(state, now, cost, each.limit, 0)
            for state, each in zip(states, rules, strict=True)
        ]
        verdict = combine([decision for _, decision in results])
        if verdict.allowed:
            states = [state for state, _ in results]
        lines = made.lines(rules, verdict)
        assert made.lines(list(rules), verdict) == lines, "a route's own rules take a short cut"
        assert of_tiers.lines(rules, verdict) == lines, "the rules of a tier are known again"
        fields = fields_of(lines)
        drafted = [
            (each, decision)
            for each, (_, decision) in zip(rules, results, strict=True)
            if each.policy.draft_headers
        ]
        assert ("RateLimit" in fields) == ("RateLimit-Policy" in fields) == bool(drafted)
        if drafted:
            quotas = parse_list(fields["RateLimit-Policy"])
            states_told = parse_list(fields["RateLimit"])
            assert [name for name, _ in quotas] == [name for name, _ in states_told]
            for (each, decision), (_, quota), (_, told) in zip(
                drafted, quotas, states_told, strict=True
            ):
                assert quota["q"] == each.limit.burst
                assert int(quota["w"]) >= 1
                assert told["r"] == (decision.remaining if decision.allowed else 0)
                if verdict.allowed:
                    # In t seconds no more than r and what flows in may pass.
                    assert int(told["t"]) * 10**9 >= int(told["r"]) * each.limit.interval_ns
                elif decision.allowed or verdict.retry_after_us == NEVER:
                    assert "t" not in told
                else:
                    assert told["t"] == seconds_up(verdict.retry_after_us)
        told_legacy = [
            decision
            for each, (_, decision) in zip(rules, results, strict=True)
            if each.policy.legacy_headers
        ]
        assert ("X-RateLimit-Limit" in fields) == bool(told_legacy)
        if told_legacy:
            left = min(d.remaining for d in told_legacy) if verdict.allowed else 0
            assert int(fields["X-RateLimit-Remaining"]) == left
            assert int(fields["X-RateLimit-Limit"]) in {d.limit for d in told_legacy}
            assert int(fields["X-RateLimit-Reset"]) >= (retry_after_s(verdict) or 0)


@given(title=st.text(max_size=30), word=st.text(max_size=30))
def test_no_name_becomes_a_header_of_its_own(title: str, word: str) -> None:
    """Quotes, percent signs, line ends, other alphabets: one valid item, for every route."""
    first = rule(Limit(5, SECOND_US, 5), title=title)
    second = rule(Limit(5, SECOND_US, 5), policy(legacy=False), title=word)
    decision = Decision(True, 0, 0, 5, 4, 1, 0)
    for rules in ([first], [second], [first, second]):
        for allowed in (True, False):
            decisions = tuple(decision._replace(allowed=allowed) for _ in rules)
            lines = LimitFields(rules).lines(rules, Verdict(allowed, 0, 0, decisions))
            fields = fields_of(lines)
            assert len(parse_list(fields["RateLimit"])) == len(rules)
            assert len(parse_list(fields["RateLimit-Policy"])) == len(rules)
            plain = "".join(c for c in title if " " <= c <= "~")
            if plain == title and rules[0] is first:
                assert parse_list(fields["RateLimit"])[0][0] == title


EVERY_LIMIT: Final = st.one_of(
    LIMITS,
    LIMITS.map(lambda limit: Limit(limit.count, limit.period_us, limit.burst, "paced_history")),
    st.builds(
        lambda count, period_us, algorithm: Limit(count, period_us, count, algorithm),
        st.integers(1, 20),
        st.integers(1000, 100 * SECOND_US),
        st.sampled_from(
            ("sliding_window_log", "sliding_window_counter", "fixed_window", "concurrency")
        ),
    ),
    st.builds(
        lambda count, calendar, zone: Limit(
            count, SECOND_US, count, "fixed_window", calendar=calendar, zone=zone
        ),
        st.integers(1, 20),
        st.sampled_from(("day", "week", "month")),
        st.sampled_from(("UTC", "Europe/Berlin", "Asia/Kolkata")),
    ),
)
AUGUST_2026: Final = 1_785_542_400 * SECOND_US


class Limited:
    """A client's own limits, which nothing else spends."""

    def __init__(self, limits: Sequence[Limit], now_us: int) -> None:
        self.rules: list[Rule] = [
            rule(limit, title=str(place)) for place, limit in enumerate(limits)
        ]
        self.now_us = now_us
        self._fields = LimitFields(self.rules)
        self._states: list[Any] = [None] * len(limits)

    def ask(self, *, ends: bool = True) -> tuple[Verdict, dict[str, str]]:
        """What is decided about a request of now, and told; it is over by the next, if it ends."""
        results = [
            ALGORITHMS[one.limit.algorithm].decide(state, self.now_us, 1, one.limit, 0)
            for state, one in zip(self._states, self.rules, strict=True)
        ]
        verdict = combine([decision for _, decision in results])
        if verdict.allowed:
            self._states = [
                ALGORITHMS["concurrency"].give_back(
                    state, self.now_us, 1, one.limit, decision.receipt
                )
                if ends and one.limit.algorithm == "concurrency"
                else state
                for (state, decision), one in zip(results, self.rules, strict=True)
            ]
        fields = fields_of(self._fields.lines(self.rules, verdict))
        if (seconds := retry_after_s(verdict)) is not None and not verdict.allowed:
            fields["Retry-After"] = str(seconds)
        return verdict, fields


def told_by_draft(fields: dict[str, str]) -> int:
    """How many seconds the IETF draft's field asks to wait before the next request."""
    states = [told for _, told in parse_list(fields["RateLimit"])]
    return max(0 if told["r"] else int(told.get("t", 0)) for told in states)


def told_by_legacy(fields: dict[str, str]) -> int:
    """How many seconds `X-RateLimit-*` asks to wait before the next request."""
    return 0 if int(fields["X-RateLimit-Remaining"]) else int(fields["X-RateLimit-Reset"])


@pytest.mark.parametrize("told_by", [told_by_draft, told_by_legacy])
@given(
    limits=st.lists(EVERY_LIMIT, min_size=1, max_size=3),
    rush=st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=30),
    start_us=st.integers(AUGUST_2026, AUGUST_2026 + 400 * 86_400 * SECOND_US),
)
def test_a_client_that_obeys_is_admitted(
    told_by: Any, limits: list[Limit], rush: list[tuple[int, bool]], start_us: int
) -> None:
    """Whatever it did before; it obeys `Retry-After` after a refusal, and one family otherwise."""
    client = Limited(limits, start_us)
    verdict, fields = client.ask()
    for passed_us, ends in rush:
        client.now_us += passed_us
        verdict, fields = client.ask(ends=ends)
    for _ in range(30):
        wait = told_by(fields)
        if not verdict.allowed:
            wait = int(fields["Retry-After"])
            assert told_by_legacy(fields) >= wait
        client.now_us += wait * SECOND_US
        held = not verdict.allowed or any(not ends for _, ends in rush)
        verdict, fields = client.ask()
        if not held or "concurrency" not in {limit.algorithm for limit in limits}:
            assert verdict.allowed
        elif wait and not verdict.allowed:
            raise AssertionError("it waited until the last lease had expired")


@given(
    limits=st.lists(EVERY_LIMIT, min_size=1, max_size=3),
    rush=st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=20, max_size=60),
)
def test_retry_after_is_never_early(limits: list[Limit], rush: list[tuple[int, bool]]) -> None:
    """At the second that a refusal names, the same request is admitted."""
    client = Limited(limits, AUGUST_2026)
    for passed_us, ends in rush:
        client.now_us += passed_us
        verdict, fields = client.ask(ends=ends)
        if not verdict.allowed:
            client.now_us += int(fields["Retry-After"]) * SECOND_US
            verdict, _ = client.ask()
            assert verdict.allowed


def told(lines: Sequence[str], times: int) -> dict[str, str]:
    """What is told after some requests at once under these limits, each of them in flight."""
    client = Limited([parse_limit(line).limit for line in lines], AUGUST_2026)
    fields: dict[str, str] = {}
    for _ in range(times):
        _, fields = client.ask(ends=False)
    return fields


def test_requests_in_flight_are_not_told_as_a_rate() -> None:
    """Beside `2/s burst 20` the three that may be in flight are no three a minute."""
    assert told(["2/s burst 20", "3 at once"], 1) == {
        "RateLimit-Policy": '"0";q=20;w=10, "1";q=3;qu="concurrent-requests"',
        "RateLimit": '"0";r=19;t=10, "1";r=2',
        "X-RateLimit-Limit": "20",
        "X-RateLimit-Remaining": "19",
        "X-RateLimit-Reset": "1",
    }


def test_a_refusal_for_what_is_in_flight_is_no_invitation() -> None:
    """`X-RateLimit-*` keeps the numbers of the rate, but nothing may be sent before the wait."""
    assert told(["2/s burst 20", "3 at once"], 4) == {
        "RateLimit-Policy": '"0";q=20;w=10, "1";q=3;qu="concurrent-requests"',
        "RateLimit": '"0";r=16, "1";r=0;t=60',
        "X-RateLimit-Limit": "20",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": "60",
        "Retry-After": "60",
    }


def test_without_a_rate_the_requests_in_flight_are_told() -> None:
    """They are all there is."""
    assert told(["3 at once"], 1) == {
        "RateLimit-Policy": '"0";q=3;qu="concurrent-requests"',
        "RateLimit": '"0";r=2',
        "X-RateLimit-Limit": "3",
        "X-RateLimit-Remaining": "2",
        "X-RateLimit-Reset": "60",
    }


def test_the_limit_that_holds_longest_is_told() -> None:
    """Of those with as little left, and of those that refused."""
    assert told(["5/s", "5/h"], 5)["X-RateLimit-Reset"] == "3600"
    refusal = told(["5/s", "5/h"], 6)
    assert (refusal["X-RateLimit-Reset"], refusal["Retry-After"]) == ("3600", "720")
