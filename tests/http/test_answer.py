"""The gateway's own answers: problem documents, and when to come back."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.answer import (
    closed,
    problem,
    refusal,
    seconds_up,
    status_line,
    throttlex_refusal,
)
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.limits.decision import NEVER, Decision, Verdict
from tests.http.limits import SECOND_US, fields_of, policy


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


@given(
    us=st.integers(0, 10**13),
    jitter=st.integers(1, PARTS_PER_WHOLE // 10),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_jitter_only_lengthens(us: int, jitter: int, draw: float) -> None:
    """By the share at most, in the field and in the body alike; what never passes stays so."""
    jittery = dataclasses.replace(policy(), jitter=jitter)
    exact = seconds_up(us)
    answer = refusal(jittery, refused(us), draw)
    told = int(fields_of(answer.fields)["Retry-After"])
    assert exact <= told <= exact + exact * jitter / PARTS_PER_WHOLE
    assert json.loads(answer.body)["retry-after"] == told
    other = throttlex_refusal(jittery, refused(us), "k", 0, draw)
    assert exact <= int(fields_of(other.fields)["Retry-After"]) <= exact * 1.1
    assert "Retry-After" not in fields_of(refusal(jittery, refused(NEVER), draw).fields)


def test_jitter_spreads() -> None:
    """Those who are refused at the same moment are told all the seconds of a tenth."""
    jittery = dataclasses.replace(policy(), jitter=PARTS_PER_WHOLE // 10)
    answers = [refusal(jittery, refused(100 * SECOND_US), n / 1000) for n in range(1000)]
    told = {int(fields_of(answer.fields)["Retry-After"]) for answer in answers}
    assert told == set(range(100, 111))


@given(name=st.text(max_size=30), words=st.text(max_size=30), us=st.integers(-1, 10**13))
def test_no_answer_of_ours_can_be_split(name: str, words: str, us: int) -> None:
    """With any name of a policy and any text in it, the head stays one head."""
    for body in ("problem", "text", "none", words):
        answer = refusal(policy(name, body=body), refused(us))
        fields_of(answer.fields)
    document = json.loads(problem(400, words, detail=name).body)
    assert (document["title"], document["detail"]) == (words, name)
