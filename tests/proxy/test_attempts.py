"""Requests that are sent again, seen from both ends of the wire."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proxy.wire import (
    OK,
    Peer,
    ScriptedUpstream,
    answering,
    answering_and_closing,
    get,
    post,
    running,
)
from tests.servers import until

UNAVAILABLE = b"HTTP/1.1 503 Away\r\nContent-Length: 4\r\n\r\naway"
COME_BACK = b"HTTP/1.1 503 Away\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
ALL = ["connect", "reset", "timeout", 503]
QUICK = {"backoff": "1ms"}


@pytest.fixture(name="dead")
def _dead() -> Iterator[str]:
    """The URL of a port that nobody listens on, and nobody else can take."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def silent() -> ScriptedUpstream:
    """An upstream that takes requests and says nothing."""

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            upstream.requests.append(request)

    upstream = ScriptedUpstream(script)
    return upstream


def put(body: bytes) -> bytes:
    """A PUT request."""
    return b"PUT" + post(body).removeprefix(b"POST")


def body_of(request: bytes) -> bytes:
    """The body of a request as an upstream read it."""
    return request.partition(b"\r\n\r\n")[2]


async def test_a_target_without_connection_is_passed_over(tmp_path: Path, dead: str) -> None:
    """Nothing was sent, so any request may be retried: POST too, and an unfinished body."""
    async with answering(OK) as alive:
        u = {"targets": [dead, alive.url], "retry": 2, "eject": "off"}
        async with running(tmp_path, alive, u=u) as run:
            client = await run.client()
            for _ in range(2):
                assert (await client.ask(post(b"whole"))).status == 200
            for _ in range(2):
                client.send(post(b"x" * 100_000)[:-1])
                await asyncio.sleep(0)
                assert (await client.ask(b"x")).status == 200
            assert run.upstream().metrics.retries["connect"] == 2
            assert not run.upstream().metrics.errors
    assert [len(body_of(request)) for request in alive.requests] == [5, 5, 100_000, 100_000]


@pytest.mark.parametrize(
    ("request_", "methods", "status", "sent"),
    [
        (get(), "idempotent", 200, 2),
        (put(b"body"), "idempotent", 200, 2),
        (post(b"body"), "idempotent", 502, 1),
        (post(b"body"), "any", 200, 2),
        (post(b"body"), ["POST"], 200, 2),
        (get(), ["POST"], 502, 1),
        (put(b"x" * 101), "idempotent", 502, 1),
    ],
)
async def test_a_connection_that_ends(
    tmp_path: Path, request_: bytes, methods: object, status: int, sent: int
) -> None:
    """What may be sent twice is, whole; all else never, however the connection ends."""
    for reset in (False, True):
        requests = []
        async with answering_and_closing(b"", reset=reset) as ends, answering(OK) as alive:
            retry = {"methods": methods, "max_body": 100}
            u = {"targets": [alive.url, ends.url], "retry": retry, "eject": "off"}
            async with running(tmp_path, alive, u=u) as run:
                first = await run.ask(request_)
                second = await run.ask(request_)
            requests = ends.requests + alive.requests
        assert sorted((first.status, second.status)) == sorted((200, status))
        assert len(requests) == sent + 1
        assert {body_of(request) for request in requests} == {body_of(request_)}


async def test_an_idle_connection_is_tried_again_without_a_task_before(tmp_path: Path) -> None:
    """The same for a request that was forwarded at once over a connection used before."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        upstream.requests.append(await peer.request())
        peer.reset()

    async with ScriptedUpstream(script) as upstream, answering(OK) as alive:
        u = {"targets": [upstream.url, alive.url], "retry": {"methods": "any"}, "eject": "off"}
        async with running(tmp_path, alive, u=u) as run:
            client = await run.client()
            answers = [await client.ask(post(b"body")) for _ in range(4)]
            assert [answer.status for answer in answers] == [200] * 4
    assert [body_of(request) for request in upstream.requests] == [b"body"]


async def test_answers_that_are_tried_again(tmp_path: Path) -> None:
    """The client sees the last answer only, with the connections of the others kept."""
    async with answering(UNAVAILABLE, UNAVAILABLE, OK, UNAVAILABLE) as upstream:
        u = {"retry": {"tries": 3, "when": [503], **QUICK}}
        async with running(tmp_path, upstream, u=u) as run:
            client = await run.client()
            answer = await client.get()
            assert (answer.status, answer.body) == (200, b"ok")
            answer = await client.get()
            assert (answer.status, answer.body) == (503, b"away")
            answer = await client.ask(post(b"once"))
            assert (answer.status, answer.body) == (503, b"away")
            assert run.upstream().metrics.retries == {"status": 4}
    assert len(upstream.requests) == 7
    assert len(upstream.peers) == 1


async def test_retry_after_is_heeded(tmp_path: Path) -> None:
    """A target that names a time is not asked before; another one may be."""
    async with answering(COME_BACK) as away, answering(OK) as alive:
        async with running(tmp_path, away, u={"retry": {"tries": 3, "when": [503]}}) as run:
            answer = await run.ask(get())
            assert (answer.status, answer.get(b"Retry-After")) == (503, b"7")
        assert len(away.requests) == 1
        u = {"targets": [away.url, alive.url], "retry": {"when": [503]}, "eject": "off"}
        async with running(tmp_path, away, u=u) as run:
            assert [(await run.ask(get())).status for _ in range(2)] == [200, 200]


async def test_a_body_that_arrives_late_is_kept(tmp_path: Path) -> None:
    """Sent on as it comes, and once more from memory; what is too large is not."""
    for size, status in ((60, 200), (200, 503)):
        async with answering(UNAVAILABLE, OK) as upstream:
            u = {"retry": {"when": [503], "max_body": 100, **QUICK}}
            async with running(tmp_path, upstream, u=u) as run:
                client = await run.client()
                whole = put(b"0123456789" * (size // 10))
                client.send(whole[:-20])
                # The first piece is on its way before the second one comes.
                await _arrives(upstream)
                assert (await client.ask(whole[-20:])).status == status
            bodies = {body_of(request) for request in upstream.requests}
            assert bodies == {body_of(whole)}
            assert len(upstream.requests) == (2 if status == 200 else 1)


async def _arrives(upstream: ScriptedUpstream) -> None:
    await until(lambda: bool(upstream.peers))


@pytest.mark.parametrize(
    "begun",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
    ],
)
async def test_nothing_is_sent_again_once_an_answer_has_begun(tmp_path: Path, begun: bytes) -> None:
    """Neither after a half of one, nor after an interim one that the client has seen."""
    async with answering_and_closing(begun) as upstream:
        u = {"retry": {"tries": 5, "when": ALL, "methods": "any"}}
        async with running(tmp_path, upstream, u=u) as run:
            answer = await run.ask(get())
            assert answer.status != 200 or not answer.is_whole
    assert len(upstream.requests) == 1


async def test_a_status_after_an_interim_answer_is_passed_on(tmp_path: Path) -> None:
    """The client has already seen an answer."""
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with (
        answering(hints + UNAVAILABLE) as upstream,
        running(tmp_path, upstream, u={"retry": {"when": [503]}}) as run,
    ):
        client = await run.client()
        assert (await client.ask(get())).status == 103
        assert (await client.read()).status == 503
    assert len(upstream.requests) == 1


async def test_a_try_that_may_be_followed_by_another_has_less_time(tmp_path: Path) -> None:
    """Neither a POST nor the last attempt: they have the time of the upstream."""
    async with silent() as slow, answering(OK, pause=0.12) as alive:
        retry = {"when": ["timeout"], "timeout": "40ms"}
        u = {"targets": [slow.url, alive.url], "retry": retry, "eject": "off"}
        async with running(tmp_path, alive, u=u) as run:
            assert (await run.ask(get())).status == 200
            assert run.upstream().metrics.retries["timeout"] == 1
        u["targets"] = alive.url
        async with running(tmp_path, alive, u=u) as run:
            assert (await run.ask(post(b"once"))).status == 200
            assert not run.upstream().metrics.retries


async def test_all_tries_together_have_one_end(tmp_path: Path) -> None:
    """`timeouts.total` is for all of them, pauses included."""
    async with silent() as slow:
        u = {
            "retry": {"tries": 10, "when": ["timeout"], "timeout": "300ms", **QUICK},
            "timeouts": {"total": "1100ms"},
        }
        async with running(tmp_path, slow, u=u) as run:
            answer = await run.ask(get())
            assert (answer.status, json.loads(answer.body)["error"]) == (504, "timeout_total")
    assert 2 <= len(slow.requests) <= 4


async def test_the_budget_is_spent(tmp_path: Path) -> None:
    """In an outage each request is sent once, but for the share of the budget."""
    async with answering(UNAVAILABLE) as upstream:
        retry = {"when": [503], "budget": "10%", "min_retries": 0, **QUICK}
        async with running(tmp_path, upstream, u={"retry": retry}) as run:
            client = await run.client()
            for _ in range(50):
                assert (await client.get()).status == 503
            metrics = run.upstream().metrics
            assert metrics.retries["status"] + metrics.retries_refused == 50
            assert 0 < metrics.retries["status"] <= 5
            assert len(upstream.requests) == 50 + metrics.retries["status"]


async def test_a_request_counts_once_whatever_it_takes(tmp_path: Path) -> None:
    """Limits are asked before the first try and not again."""
    retry = {"tries": 3, "when": [503], **QUICK}
    async with (
        answering(UNAVAILABLE, UNAVAILABLE, OK) as upstream,
        running(tmp_path, upstream, u={"retry": retry}, route={"limit": "2/day burst 2"}) as run,
    ):
        assert [(await run.ask(get())).status for _ in range(3)] == [200, 200, 429]
    assert len(upstream.requests) == 4


@pytest.mark.parametrize(
    ("retry", "status", "sent"),
    [("off", 503, 1), ({"methods": "any"}, 200, 2), ({"when": [502]}, 503, 1)],
)
async def test_a_route_may_say_otherwise(
    tmp_path: Path, retry: object, status: int, sent: int
) -> None:
    """Field by field, or that nothing is sent again."""
    async with answering(UNAVAILABLE, OK) as upstream:
        u = {"retry": {"when": [503], **QUICK}}
        async with running(tmp_path, upstream, u=u, route={"retry": retry}) as run:
            assert (await run.ask(post(b"body"))).status == status
    assert len(upstream.requests) == sent


async def test_a_client_that_leaves_between_two_tries(tmp_path: Path) -> None:
    """Nothing is sent for it any more."""
    async with answering(UNAVAILABLE) as upstream:
        retry = {"tries": 10, "when": [503], "backoff": "1h", "max_backoff": "1h"}
        async with running(tmp_path, upstream, u={"retry": retry}) as run:
            client = await run.client()
            client.send(get())
            await _arrives(upstream)
            client.close()
            await run.settle()
            assert run.gateway.metrics.clients_left == 1
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("request_", "status", "sent"),
    [
        (put(b"small"), 200, 2),
        (post(b"small"), 502, 1),
        (put(b"x" * 400_000), 502, 1),
        (post(b"x" * 400_000), 502, 1),
    ],
)
async def test_the_race_for_an_idle_connection(
    tmp_path: Path, request_: bytes, status: int, sent: int
) -> None:
    """Without any retries: what is idempotent and here as a whole is sent again, once; else not."""

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer.request()
            await peer.send(OK)
        while request := await peer.request():
            upstream.requests.append(request)
            if peer.number == 0:
                peer.close()
                return
            await peer.send(OK)

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        assert (await client.get()).status == 200
        client.send(request_[:200])
        client.send(request_[200:])
        assert (await client.read()).status == status
    assert [body_of(request) for request in upstream.requests] == [body_of(request_)] * sent


async def test_what_is_sent_again_is_not_sent_again_again(tmp_path: Path) -> None:
    """A client should not repeat what it has repeated by itself (RFC 9112, section 9.3.1)."""

    async def script(peer: Peer) -> None:
        if peer.number == 0:
            await peer.request()
            await peer.send(OK)
        upstream.requests.append(await peer.request())
        peer.close()

    async with ScriptedUpstream(script) as upstream, running(tmp_path, upstream) as run:
        client = await run.client()
        assert (await client.get()).status == 200
        answer = await client.get()
        assert (answer.status, json.loads(answer.body)["error"]) == (502, "closed")
    assert len(upstream.requests) == 2


async def test_a_try_after_an_ejected_target_goes_elsewhere(tmp_path: Path, dead: str) -> None:
    """Failures of tries count for the target, whatever becomes of the request."""
    async with answering(OK) as alive:
        u = {"targets": [dead, alive.url], "retry": 2, "eject": {"failures": 2}}
        async with running(tmp_path, alive, "is left out for", u=u) as run:
            client = await run.client()
            assert [(await client.get()).status for _ in range(10)] == [200] * 10
            assert run.upstream().metrics.retries["connect"] == 2


async def test_waiting_in_line_says_nothing_of_the_target(tmp_path: Path) -> None:
    """Whose time ends before there is a connection for him is no failure that a breaker counts."""
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            upstream.requests.append(request)
            await go_on.wait()
            await peer.send(OK)

    u = {
        "max_connections": 1,
        "timeouts": {"total": "300ms", "queue": "5s"},
        "retry": 2,
        "breaker": {"failures": "50%", "min_requests": 3},
    }
    async with (
        ScriptedUpstream(script) as upstream,
        running(tmp_path, upstream, "became free in time", u=u) as run,
    ):
        first = await run.client()
        first.send(get())
        await until(lambda: len(upstream.requests) == 1)
        others = [await run.client() for _ in range(4)]
        for client in others:
            client.send(get())
        statuses = [(await client.read()).status for client in others]
        # The first of them may have had the connection for the rest of its time.
        assert statuses[1:] == [503] * 3
        go_on.set()
        await first.read()
        assert (await run.ask(get())).status == 200
        assert run.upstream().metrics.errors["timeout_queue"] >= 3
