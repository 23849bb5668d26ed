"""The line of a request: its fields, and that nothing in them can break it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.observe.logs import AccessEntry, AccessLog, access, escape
from gateway.observe.logs.escape import LogFormat
from tests.work import counted

NOON_US = 1_700_000_000_123_999

# Everything a str can hold, and often what is dangerous. As a list of pieces, since an
# alphabet would be one big set in which the dangerous few are never drawn.
anything = st.lists(
    st.one_of(
        st.text(),
        st.characters(categories=["Cs"]),
        st.characters(categories=["Cc", "Cf", "Zl", "Zp"]),
        st.sampled_from(["\\", '"', "\\ud800", "\ud83d\ude00", "ud", "\r\n", " status=200"]),
    ),
    max_size=4,
).map("".join)


def log_line(log_format: LogFormat, *fields: Any) -> str:
    """The one line that a request with these fields makes."""
    written: list[str] = []
    AccessLog(written.append, log_format, ManualClock(NOON_US)).log(AccessEntry(*fields))
    assert len(written) == 1
    return written[0]


def visible(text: str) -> str:
    """How a text should read back: lone surrogates as their code; two halves make a whole."""
    whole: str = json.loads(json.dumps(text))
    return whole.encode("utf-8", "backslashreplace").decode()


def test_json_line_of_a_request_that_went_through() -> None:
    """Every field under its name, times in milliseconds."""
    fields = ("203.0.113.9", "GET", "api.example.com", "/v1/pay?x=%20", "/v1/pay", "pay")
    line = log_line("json", *fields, "delay", 12_345, "10.0.0.3:80", 1_234, 200, 113, 15_000)
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123Z",
        "client": "203.0.113.9",
        "method": "GET",
        "host": "api.example.com",
        "path": "/v1/pay?x=%20",
        "route": "/v1/pay",
        "policy": "pay",
        "decision": "delay",
        "wait_ms": 12.345,
        "upstream": "10.0.0.3:80",
        "upstream_ms": 1.234,
        "status": 200,
        "bytes": 113,
        "duration_ms": 15.0,
    }


def test_json_line_leaves_out_what_does_not_apply() -> None:
    """No route, policy, upstream or error: no such fields."""
    line = log_line("json", "::1", "GET", "a", "/", "", "", "none", 0, "", -1, 404, 10, 1)
    assert json.loads(line).keys() == {
        *("time", "client", "method", "host", "path", "decision", "wait_ms"),
        *("status", "bytes", "duration_ms"),
    }


def test_json_line_of_an_upstream_that_never_answered() -> None:
    """The target is named, its time is not made up, and the error's kind is there."""
    line = log_line(
        "json", "::1", "GET", "a", "/", "r", "p", "pass", 0, "u:1", -1, 504, 10, 1, "timeout"
    )
    entry = json.loads(line)
    assert entry["upstream"] == "u:1"
    assert "upstream_ms" not in entry
    assert entry["error"] == "timeout"


def test_text_line_is_aligned_and_readable() -> None:
    """The text form, word for word."""
    fields = ("203.0.113.9", "GET", "api.example.com", "/v1/pay", "/v1/pay", "pay")
    assert log_line("text", *fields, "delay", 12_345, "10.0.0.3:80", 1_234, 200, 113, 15_000) == (
        "2023-11-14T22:13:20.123Z 200 delay     15.000ms 203.0.113.9     GET    api.example.com "
        "/v1/pay route=/v1/pay policy=pay wait=12.345ms upstream=10.0.0.3:80 "
        "upstream_time=1.234ms bytes=113\n"
    )
    assert log_line("text", "::1", "", "", "/a b", "", "", "none", 0, "", -1, 400, 9, 1, "x") == (
        '2023-11-14T22:13:20.123Z 400 none       0.001ms ::1             -      - "/a b" '
        "bytes=9 error=x\n"
    )


@given(texts=st.lists(anything, min_size=9, max_size=9), number=st.integers(0, 10**15))
def test_any_text_makes_one_json_line_that_reads_back(texts: list[str], number: int) -> None:
    """Whatever a client sends: one line, visible ASCII, strict JSON, the same text inside."""
    client, method, host, path, route, policy, decision, upstream, error = texts
    fields = (client, method, host, path, route, policy, decision, number, upstream)
    line = log_line("json", *fields, number, 200, number, number, error)
    assert line.endswith("}\n")
    assert re.fullmatch(r"[ -~]+", line[:-1])
    entry = json.loads(line)
    json.dumps(entry, ensure_ascii=False).encode()  # no lone surrogate is left
    names = ("client", "method", "host", "path", "route", "policy", "decision", "upstream", "error")
    for name, text in zip(names, texts, strict=True):
        assert entry.get(name, "") == visible(text)


@given(texts=st.lists(anything, min_size=9, max_size=9))
def test_any_text_makes_one_text_line(texts: list[str]) -> None:
    """In the text form too: one line, visible ASCII, nothing for a terminal to obey."""
    client, method, host, path, route, policy, decision, upstream, error = texts
    fields = (client, method, host, path, route, policy, decision, 1, upstream, 1, 200, 1, 1)
    line = log_line("text", *fields, error)
    assert re.fullmatch(r"[ -~]+\n", line)


@pytest.mark.parametrize("forged", ['x" status=200 y="', "x status=200", "x\n2023 200 pass"])
def test_text_line_cannot_be_forged(forged: str) -> None:
    """A path that looks like further fields stays one quoted value."""
    line = log_line("text", "::1", "GET", "a", forged, "", "", "none", 0, "", -1, 404, 10, 1)
    rest = line.split(" a ", 1)[1]
    value, end = json.JSONDecoder().raw_decode(rest)
    assert value == forged
    assert rest[end:] == " bytes=10\n"


def test_time_moves_on() -> None:
    """The remembered text of a moment is not used for another one."""
    clock = ManualClock(NOON_US)
    written: list[str] = []
    log = AccessLog(written.append, "json", clock)
    for step_us in (0, 1_000, 876_000, 86_400_000_000, -1_000_000):
        clock.advance(us=step_us)
        log.log(AccessEntry("c", "GET", "h", "/", "r", "p", "pass", 0, "", -1, 200, 0, 0))
    assert [json.loads(line)["time"] for line in written] == [
        "2023-11-14T22:13:20.123Z",
        "2023-11-14T22:13:20.124Z",
        "2023-11-14T22:13:21.000Z",
        "2023-11-15T22:13:21.000Z",
        "2023-11-15T22:13:20.000Z",
    ]


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize(
    "piece", ['"', "\\", "\udcff", '"\udcff', "\u00e9", "\U0001f600\udc80", "%41"]
)
def test_what_must_be_escaped_costs_what_its_bytes_do(log_format: LogFormat, piece: str) -> None:
    """A path of thousands of quotes, or of bytes that are no UTF-8, takes no step for each."""
    lines = []
    # The first line of a route in a process is made without what is remembered of it.
    for count in (4, 4, 4000):
        fields = ("203.0.113.9", "GET", "a", "/" + count * piece, "r", "p", "pass", 0, "", -1)
        with counted(access, escape) as work:
            log_line(log_format, *fields, 200, 1, 1)
        lines.append(work.lines)
    assert lines[2] == lines[1]
