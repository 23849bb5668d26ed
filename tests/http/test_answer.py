"""The gateway's own answers: problem documents, waits, and the fields that tell of limits.

The fields are read with a small parser of Structured Fields (RFC 9651), not with patterns: a
field that a client's parser refuses is worth nothing.
"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.answer import LimitFields, closed, problem, refusal, seconds_up, status_line
from gateway.limiter.plan import CompiledPolicy, Rule
from gateway.limits import ALGORITHMS
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.observe.metrics import PolicyMetrics

SECOND_US = 1_000_000
Items = list[tuple[str, dict[str, int]]]


def parse_list(text: str) -> Items:
    """A List of Strings with Integer parameters (RFC 9651, section 4.2), read strictly."""
    items: Items = []
    position = 0
    string = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
    parameter = re.compile(r"; *([a-z*][a-z0-9_\-.*]*)=(-?[0-9]{1,15})(?![0-9.])")
    while True:
        found = string.match(text, position)
        assert found, text[position:]
        parameters: dict[str, int] = {}
        position = found.end()
        while more := parameter.match(text, position):
            assert more[1] not in parameters
            parameters[more[1]] = int(more[2])
            position = more.end()
        items.append((re.sub(r"\\(.)", r"\1", found[1]), parameters))
        if position == len(text):
            return items
        comma = re.compile(r"[ \t]*,[ \t]*").match(text, position)
        assert comma, text[position:]
        position = comma.end()


def fields_of(lines: bytes) -> dict[str, str]:
    """Header lines; each name once, each line ended, nothing but printable ASCII in them."""
    assert lines == b"" or lines.endswith(b"\r\n")
    fields: dict[str, str] = {}
    for line in lines.decode("ascii").split("\r\n")[:-1]:
        name, separator, value = line.partition(": ")
        assert separator
        assert re.fullmatch(r"[A-Za-z-]+", name)
        assert re.fullmatch(r"[\x20-\x7e]*", value), value
        assert name not in fields
        fields[name] = value
    return fields


def policy(
    name: str = "pay",
    *,
    status: int = 429,
    body: str = "problem",
    draft: bool = True,
    legacy: bool = True,
) -> CompiledPolicy:
    """A policy."""
    return CompiledPolicy(
        name=name,
        queue_max=0,
        status=status,
        body=body,
        on_store_error="local",
        draft_headers=draft,
        legacy_headers=legacy,
        metrics=PolicyMetrics(),
    )


def rule(limit: Limit, the_policy: CompiledPolicy | None = None, title: str = "pay") -> Rule:
    """A rule."""
    return Rule(the_policy or policy(), limit, lambda _: "k", title, "ip")


def refused(retry_after_us: int) -> Verdict:
    """A verdict of one limit that refused."""
    decision = Decision(False, 0, retry_after_us, 5, 0, 2 * SECOND_US, 0)
    return Verdict(False, 0, retry_after_us, (decision,))


@pytest.mark.parametrize(
    ("us", "seconds"),
    [
        (0, 1),
        (1, 1),
        (999_999, 1),
        (1_000_000, 1),
        (1_000_001, 2),
        (59_999_999, 60),
        (10**12, 10**6),
    ],
)
def test_seconds_are_rounded_up(us: int, seconds: int) -> None:
    """A client that waits as long as the header says is never early; 0 would mean immediately."""
    assert seconds_up(us) == seconds


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "quota-exceeded"), (503, "temporary-reduced-capacity")]
)
def test_a_refusal_is_a_problem_document(status: int, kind: str) -> None:
    """With the wait in the field and in the document, the same in both."""
    answer = refusal(policy(status=status), refused(1_500_000))
    fields = fields_of(answer.fields)
    document = json.loads(answer.body)
    assert answer.status == document["status"] == status
    assert fields["Content-Type"] == "application/problem+json"
    assert fields["Cache-Control"] == "no-store"
    assert int(fields["Retry-After"]) == document["retry-after"] == 2
    assert document["type"].endswith(f"#{kind}")
    assert document["violated-policies"] == ["pay"]
    assert document["title"]


@pytest.mark.parametrize("body", ["problem", "text", "none", "Come back later, é\r\nX: y"])
def test_what_can_never_pass_has_no_time_to_come_back(body: str) -> None:
    """`Retry-After` would be a lie then."""
    answer = refusal(policy(body=body), refused(NEVER))
    assert "Retry-After" not in fields_of(answer.fields)
    assert b"retry-after" not in answer.body


def test_bodies_of_other_kinds() -> None:
    """A line of text, nothing, or the operator's own words as they are."""
    answers = {
        body: refusal(policy(body=body), refused(1)) for body in ("text", "none", "mañana\n")
    }
    for answer in answers.values():
        fields = fields_of(answer.fields)
        assert fields["Retry-After"] == "1"
        assert fields["Cache-Control"] == "no-store"
        assert ("Content-Type" in fields) == bool(answer.body)
    assert [answer.body for answer in answers.values()] == [
        b"Too many requests\n",
        b"",
        "mañana\n".encode(),
    ]
    assert fields_of(answers["text"].fields)["Content-Type"] == "text/plain; charset=utf-8"


def test_while_the_store_is_away() -> None:
    """503 with a time to come back."""
    answer = closed(SECOND_US)
    assert (answer.status, fields_of(answer.fields)["Retry-After"]) == (503, "1")
    assert json.loads(answer.body)["retry-after"] == 1


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (200, b"HTTP/1.1 200 OK"),
        (413, b"HTTP/1.1 413 Content Too Large"),
        (429, b"HTTP/1.1 429 Too Many Requests"),
    ],
)
def test_status_lines(status: int, line: bytes) -> None:
    """The standard's words where it has some."""
    assert status_line(status).rstrip(b"\r\n") == line


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
                assert quota["w"] >= 1
                assert told["r"] == (decision.remaining if decision.allowed else 0)
                if verdict.allowed:
                    # In t seconds no more than r and what flows in may pass.
                    assert told["t"] * 10**9 >= told["r"] * each.limit.interval_ns
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
            left = min(d.remaining if d.allowed else 0 for d in told_legacy)
            assert int(fields["X-RateLimit-Remaining"]) == left
            assert int(fields["X-RateLimit-Limit"]) in {d.limit for d in told_legacy}
            assert int(fields["X-RateLimit-Reset"]) >= 0


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


@given(name=st.text(max_size=30), words=st.text(max_size=30), us=st.integers(-1, 10**13))
def test_no_answer_of_ours_can_be_split(name: str, words: str, us: int) -> None:
    """With any name of a policy and any text in it, the head stays one head."""
    for body in ("problem", "text", "none", words):
        answer = refusal(policy(name, body=body), refused(us))
        fields_of(answer.fields)
    document = json.loads(problem(400, words, detail=name).body)
    assert (document["title"], document["detail"]) == (words, name)
