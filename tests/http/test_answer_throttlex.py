"""Answers in ThrottleX's form: its JSON, and the three fields of its design."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.answer import throttlex_closed, throttlex_refusal
from gateway.http.limit_fields import LimitFields
from gateway.limiter.plan import CompiledPolicy, KeyedRules, Rule
from gateway.limits import ALGORITHMS
from gateway.limits.decision import NEVER, Verdict
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.rate import Limit
from gateway.limits.throttlex import DEFAULTS, Numbers, limit_of, scope_of
from gateway.observe.metrics import PolicyMetrics
from gateway.stores.base import Ask

SECOND_US: Final = 1_000_000
NOW_US: Final = 1_771_743_300_999_999
BUCKET: Final = limit_of(DEFAULTS, scope_of("api"))


def rule(
    limit: Limit,
    *,
    draft: bool = False,
    legacy: bool = False,
    throttlex: bool = True,
    book: KeyOverrides | None = None,
) -> Rule:
    """A rule of a policy of its own."""
    policy = CompiledPolicy(
        name="api",
        queue_max=0,
        status=429,
        body="throttlex",
        on_store_error="local",
        draft_headers=draft,
        legacy_headers=legacy,
        metrics=PolicyMetrics(),
        throttlex_headers=throttlex,
        overrides=book,
    )
    return Rule(policy, limit, lambda _: "k", "api", "ip")


def fields_of(lines: bytes) -> dict[str, str]:
    """Header lines, each name once."""
    pairs = [line.partition(": ") for line in lines.decode("ascii").splitlines()]
    fields = {name: value for name, _, value in pairs}
    assert len(fields) == len(pairs)
    return fields


def asked(limit: Limit, *costs: int) -> Verdict:
    """What is said of the last of some requests of one moment."""
    state = None
    decision = None
    for cost in costs:
        state, decision = ALGORITHMS[limit.algorithm].decide(state, NOW_US, cost, limit, 0)
    assert decision is not None
    return Verdict(decision.allowed, decision.wait_us, decision.retry_after_us, (decision,))


def test_a_refusal_is_its_json() -> None:
    """Whole, and with the moment as ISO 8601 in UTC."""
    answer = throttlex_refusal(rule(BUCKET).policy, asked(BUCKET, 100, 1), "user-123", NOW_US)
    assert answer.status == 429
    assert fields_of(answer.fields) == {
        "Content-Type": "application/json",
        "Cache-Control": "no-store",
        "Retry-After": "1",
    }
    assert json.loads(answer.body) == {
        "status": 429,
        "error": "Too Many Requests",
        "message": "Rate limit exceeded for key: user-123",
        "timestamp": "2026-02-22T06:55:00Z",
    }


def test_a_store_that_is_away_is_told_in_the_same_form() -> None:
    """With the status and the words of that."""
    document = json.loads(throttlex_closed(1_500_000, NOW_US).body)
    assert (document["status"], document["error"]) == (503, "Service Unavailable")
    assert fields_of(throttlex_closed(1_500_000, NOW_US).fields)["Retry-After"] == "2"


@pytest.mark.parametrize("retry_after_us", [NEVER, 100 * 366 * 86_400 * SECOND_US])
def test_nobody_is_told_to_come_back_in_a_hundred_years(retry_after_us: int) -> None:
    """What is never refilled has no time to come back at."""
    verdict = asked(BUCKET, 100, 1)._replace(retry_after_us=retry_after_us)
    assert b"Retry-After" not in throttlex_refusal(rule(BUCKET).policy, verdict, "k", 0).fields


@given(key=st.text(max_size=200))
def test_any_key_is_text_in_a_document(key: str) -> None:
    """Whatever a client is counted by, the answer stays JSON."""
    answer = throttlex_refusal(rule(BUCKET).policy, asked(BUCKET, 101), key, NOW_US)
    assert json.loads(answer.body)["message"].endswith(key)


@given(
    spent=st.integers(1, 5),
    rate=st.integers(1, 50),
    kind=st.sampled_from(["TOKEN_BUCKET", "SLIDING_WINDOW"]),
)
def test_who_heeds_retry_after_is_not_refused(spent: int, rate: int, kind: str) -> None:
    """After a success too: at the given moment, one more request passes."""
    limit = limit_of(
        DEFAULTS._replace(type=kind, capacity=5, refill_rate=Fraction(rate), window_seconds=9)
    )
    state, _ = ALGORITHMS[limit.algorithm].decide(None, NOW_US, spent, limit, 0)
    said = fields_of(LimitFields([rule(limit)]).lines([rule(limit)], asked(limit, spent)))
    assert said["X-RateLimit-Limit"] == "5"
    assert said["X-RateLimit-Remaining"] == str(5 - spent)
    if kind == "SLIDING_WINDOW" and spent == 5:
        assert "Retry-After" not in said
        return
    then_us = NOW_US + int(said["Retry-After"]) * SECOND_US
    assert ALGORITHMS[limit.algorithm].decide(state, then_us, 1, limit, 0)[1].allowed


def test_beside_a_policy_with_fields_of_our_own() -> None:
    """Each field is there once; those of the tightest limit are in its policy's form."""
    ours = rule(Limit(5, SECOND_US, 5), draft=True, legacy=True, throttlex=False)
    theirs = rule(BUCKET)
    rules = [ours, theirs]
    decisions = (*asked(ours.limit, 1).decisions, *asked(BUCKET, 1).decisions)
    said = fields_of(LimitFields(rules).lines(rules, Verdict(True, 0, 0, decisions)))
    assert (said["X-RateLimit-Limit"], said["X-RateLimit-Reset"]) == ("5", "1")
    assert said["RateLimit-Policy"] == '"api";q=5;w=1'
    assert "Retry-After" not in said
    decisions = (*asked(ours.limit, 1).decisions, *asked(BUCKET, 97).decisions)
    said = fields_of(LimitFields(rules).lines(rules, Verdict(True, 0, 0, decisions)))
    assert (said["X-RateLimit-Limit"], said["X-RateLimit-Remaining"]) == ("100", "3")
    assert "X-RateLimit-Reset" not in said


def test_fields_are_those_of_the_key() -> None:
    """Where the numbers depend on the key, the fields of every form do."""
    book = KeyOverrides(str)
    base = rule(BUCKET, draft=True, legacy=True, throttlex=False, book=book)
    fields = LimitFields([base])
    book.replace({"k": Numbers(capacity=7)}, folds=False)
    ask, rules = KeyedRules().resolve(Ask((BUCKET,), ("k",), 1, 0), (base,))
    said = fields_of(fields.lines(rules, asked(ask.limits[0], 1)))
    assert said["RateLimit-Policy"] == '"api";q=7;w=1'
    assert (said["X-RateLimit-Limit"], said["X-RateLimit-Remaining"]) == ("7", "6")
    ask, rules = KeyedRules().resolve(Ask((BUCKET,), ("other",), 1, 0), (base,))
    said = fields_of(fields.lines(rules, asked(ask.limits[0], 1)))
    assert said["RateLimit-Policy"] == '"api";q=100;w=10'
