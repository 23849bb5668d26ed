"""A refusal that is sent again is the one that a fresh look at the limits would give."""

from __future__ import annotations

import time
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from tests.proxy.wire import OK, Answer, answering, running
from tests.servers import until

LINES = {
    "token_bucket": ("1/d per all", "3/s burst 1 per ip", "7/m burst 2 per header:X-Id"),
    "sliding_window_log": ("1/s per all", "2/m per ip", "3/10s per header:X-Id"),
    "sliding_window_counter": ("1/s per all", "2/m per ip", "3/10s per header:X-Id"),
    "fixed_window": ("1/s per all", "2/m per ip", "3/10s per header:X-Id"),
    "paced_history": ("1/s burst 1 per all", "2/m burst 2 per ip"),
}
START_US = 1_000_000_000

algorithms = st.sampled_from(
    [
        (name, list(lines))
        for name, all_lines in LINES.items()
        for size in (1, 1, 2)
        for lines in combinations(all_lines, size)
    ]
)
bodies = st.sampled_from(("problem", "text", "none", "come back later"))
styles = st.sampled_from(("draft", "legacy", "both", "throttlex", "none"))
pages = st.sampled_from((None, {"4xx": {"html": "<p>{status}"}, "503": {"text": "busy\n"}}))
edits = st.sampled_from(
    (
        {},
        {"set": {"X-Frame-Options": "DENY"}, "remove": ["Cache-Control"]},
        {"add": {"X-You": "{client_ip} {header.X-Id} {route}"}},
    )
)
requests = st.builds(
    "{} /a HTTP/1.1\r\nHost: a.test\r\n{}{}\r\n".format,
    st.sampled_from(("GET", "HEAD", "DELETE")),
    st.sampled_from(("", "Accept: text/html\r\n", "Accept: text/plain;q=0.5\r\n")),
    st.sampled_from(("X-Id: a\r\n", "X-Id: b\r\n")),
)


def _said(answer: Answer) -> tuple[bytes, list[tuple[bytes, bytes]], bytes]:
    """All of an answer but the time of day."""
    return answer.first, [field for field in answer.fields if field[0] != b"date"], answer.body


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    limits=algorithms,
    body=bodies,
    status=st.sampled_from((429, 503)),
    style=styles,
    page=pages,
    edit=edits,
    request=requests,
    age_us=st.integers(0, 3_000_000),
    part=st.floats(0, 1, exclude_max=True),
)
async def test_a_repeated_refusal_is_what_a_fresh_one_would_be(
    tmp_path: Path,
    *,
    limits: tuple[str, list[str]],
    body: str,
    status: int,
    style: str,
    page: dict[str, Any] | None,
    edit: dict[str, Any],
    request: str,
    age_us: int,
    part: float,
) -> None:
    """At any moment at which it is repeated, another connection gets the same answer."""
    policy = {
        "algorithm": limits[0],
        "limits": limits[1],
        "headers": style,
        "on_limit": {"status": status, "body": body},
    }
    more = {} if page is None else {"error_pages": page}
    route = {"policies": ["p"], "response_headers": edit, **more}
    data, is_head = request.encode(), request.startswith("HEAD")
    clock = ManualClock(START_US)
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, policies={"p": policy}, route=route) as run,
    ):
        store: Any = run.gateway._running.store
        store._clock = store._calendar_clock = clock
        one, other = await run.client(), await run.client()
        for _ in range(4):
            await other.ask(data, is_head=is_head)
        other.close()
        await until(lambda: len(run.gateway._proxy._clients) == 1)
        clock.advance(us=age_us)
        while (first := await one.ask(data, is_head=is_head)).status == 200:
            pass
        (connection,) = run.connections
        reply: Any = connection.repeatable
        event("kept" if reply is not None else "not kept")
        if reply is None:
            return
        left_us = max(reply._until_ns - time.monotonic_ns(), 0) // 1000
        clock.advance(us=int(left_us * part))
        other = await run.client()

        fresh = await other.ask(data, is_head=is_head)
        repeated = await one.ask(data, is_head=is_head)

        assert _said(repeated) == _said(fresh) == _said(first)


@pytest.mark.parametrize(
    ("policy", "route"),
    [
        ({"limit": "1/d per all", "queue": {"max": 1, "max_wait": "1ms"}}, {}),
        ({"limit": "1/d per all", "consistency": "leased"}, {}),
        ({"limit": "1/d per all", "count_refused": True, "algorithm": "sliding_window_log"}, {}),
        ({"limit": "1/d per all", "on_limit": {"body": "throttlex"}}, {}),
        ({"limit": "1/d per all"}, {"response_headers": {"set": {"X-Host": "{host}"}}}),
    ],
    ids=["queue", "leased", "counted", "time of day", "template"],
)
async def test_nothing_that_may_change_is_repeated(
    tmp_path: Path, policy: dict[str, Any], route: dict[str, Any]
) -> None:
    """Each request is decided again if turns return, refusals count or answers vary."""
    async with (
        answering(OK) as upstream,
        running(
            tmp_path, upstream, policies={"p": policy}, route={"policies": ["p"], **route}
        ) as run,
    ):
        client = await run.client()

        assert [(await client.get("/a")).status for _ in range(3)] == [200, 429, 429]
        assert all(each.repeatable is None for each in run.connections)


async def test_a_limit_that_did_not_refuse_is_never_out_of_date(tmp_path: Path) -> None:
    """What is left of it grows while another one refuses, so the refusal is not kept."""
    policies = {"p": {"limits": ["1/d per all", "100/s burst 100 per ip"]}}
    async with (
        answering(OK) as upstream,
        running(tmp_path, upstream, policies=policies, route={"policies": ["p"]}) as run,
    ):
        client = await run.client()

        assert [(await client.get("/a")).status for _ in range(2)] == [200, 429]
        assert all(each.repeatable is None for each in run.connections)
