"""What the Throttr store does when its server fails in every way that servers do.

No failure is ever waited for by a decision, nothing but a `StoreError` comes of it, and when the
server is back the store is too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from gateway.base.errors import StoreError, StoreReplyError, StoreUnavailable
from gateway.stores.base import Ask
from gateway.stores.deadline import decide_within
from gateway.systems.throttr.pipe import MAX_UNANSWERED
from gateway.systems.throttr.store import ThrottrStore
from gateway.systems.throttr.store_url import parse_throttr_url
from tests.processes import free_port
from tests.servers import becomes, until
from tests.stores.contract import WINDOW, ask, decide, remaining
from tests.stores.making import making, ready
from tests.throttr_server import ThrottrServer

HOUR_US = 3_600_000_000
LIMIT = replace(WINDOW, count=1000, burst=1000, period_us=HOUR_US, scope="faults/window")
NARROW = replace(LIMIT, count=10, burst=10, scope="faults/narrow")

MakeStore = Callable[..., ThrottrStore]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture
async def make_store() -> AsyncIterator[MakeStore]:
    """Makes stores that are closed when the test is over."""
    async with making(ThrottrStore, domain=f"t{free_port()}", deadline_us=500_000) as make:
        yield make


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrottrServer]:
    """A server that is well again after each test."""
    running = ThrottrServer(tmp_path_factory.mktemp("throttr"))
    running.start()
    yield running
    running.stop()


async def outcome(store: ThrottrStore) -> str:
    """The reason why one decision failed; empty if it did not."""
    try:
        await decide_within(store, [ask(LIMIT, "failing")], 1)
    except StoreError as error:
        return error.reason
    return ""


async def reason_becomes(store: ThrottrStore, reason: str) -> None:
    """Ask until the store fails for this reason, or answers if it is empty."""
    await becomes(lambda: outcome(store), reason)


class Rude:
    """A server of another kind."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._server: asyncio.Server | None = None
        self.port = free_port()
        self.connections = 0

    @property
    def url(self) -> str:
        """What a store connects to."""
        return f"throttr+v5://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                await self._serve(reader, writer)
            finally:
                writer.close()

        self._server = await asyncio.start_server(serve, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer a store's first words as a server of 16 bits does."""
    # QUERY, INSERT and QUERY of a key of 14 bytes; the PURGE comes when these are answered.
    await reader.readexactly(2 * 16 + 21)
    writer.write(b"\0\1\1" + bytes.fromhex("5a00 04 0400"))
    await reader.readexactly(16)
    writer.write(b"\1")
    await writer.drain()


async def test_a_server_that_is_not_there_yet(tmp_path: Path, make_store: MakeStore) -> None:
    """Starting does not fail, asking fails at once, and the server is found when it comes."""
    server = ThrottrServer(tmp_path / "late")
    store = make_store(server.url)
    await store.start()
    assert await outcome(store) == "connect"
    assert not store.is_ready
    assert store.gateways == 1
    server.start()
    try:
        await reason_becomes(store, "")
        assert store.is_ready
    finally:
        server.stop()


async def test_a_killed_server(server: ThrottrServer, make_store: MakeStore) -> None:
    """Calls in flight fail with the connection, later ones immediately; a new server serves."""
    store = await ready(make_store(server.url))
    await decide(store, ask(LIMIT, cost=7))
    server.freeze()
    calls = [asyncio.create_task(store.decide([ask(LIMIT)])) for _ in range(10)]
    await asyncio.sleep(0)
    server.kill()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert await outcome(store) in {"unavailable", "connect"}
    assert not store.is_ready
    server.start()
    await reason_becomes(store, "")
    assert await remaining(store, LIMIT) == LIMIT.count


async def test_a_frozen_server_and_what_came_too_late(
    server: ThrottrServer, make_store: MakeStore
) -> None:
    """Callers leave at their deadline; what is taken for them afterwards is given back."""
    store = await ready(make_store(server.url, heartbeat_s=60))
    await decide(store, ask(LIMIT), ask(NARROW))
    server.freeze()
    for _ in range(4):
        with pytest.raises(StoreError) as caught:
            await decide_within(store, [ask(LIMIT, cost=10), ask(LIMIT, cost=20)], 0.02)
        assert caught.value.reason == "timeout"
    server.thaw()
    await becomes(lambda: remaining(store, LIMIT), LIMIT.count - 1)
    assert await remaining(store, NARROW) == NARROW.count - 1


async def test_a_connection_without_an_answer_is_given_up(
    server: ThrottrServer, make_store: MakeStore
) -> None:
    """At the second heartbeat; waiting calls get an error, and a new connection is opened."""
    store = await ready(make_store(server.url, heartbeat_s=0.1))
    server.freeze()
    with pytest.raises(StoreUnavailable) as caught:
        await store.decide([ask(LIMIT)])
    assert caught.value.reason == "stalled"
    server.thaw()
    await reason_becomes(store, "")


async def test_two_gateways_admit_exactly_the_limit(
    server: ThrottrServer, make_store: MakeStore
) -> None:
    """With any number of connections and clients, and with anything else in one batch."""
    stores = [await ready(make_store(server.url, domain="exact")) for _ in range(3)]
    both = Ask((LIMIT, replace(NARROW, count=90)), ("k", "k"), 1, 0)
    asks = [ask(LIMIT), both, ask(LIMIT), both]
    calls = [store.decide(asks) for _ in range(200) for store in stores]
    found = [verdict for batch in await asyncio.gather(*calls) for verdict in batch]
    of_both = [verdict for verdict in found if len(verdict.decisions) == 2]
    assert sum(verdict.allowed for verdict in of_both) <= 90
    assert sum(verdict.allowed for verdict in found) <= 1000
    # Of what was taken in vain all has come back: nothing is lost.
    assert await remaining(stores[0], LIMIT) == 1000 - sum(verdict.allowed for verdict in found)


async def test_gateways_count_each_other(server: ThrottrServer, make_store: MakeStore) -> None:
    """Those of one domain; one that leaves is missed at once, another domain is not counted."""
    await ready(make_store(server.url, domain="others", heartbeat_s=0.05))
    options = {"domain": "counted", "heartbeat_s": 0.05}
    stores = [await ready(make_store(server.url, **options)) for _ in range(3)]
    await until(lambda: all(store.gateways == 3 for store in stores))
    await stores[0].aclose()
    await until(lambda: all(store.gateways == 2 for store in stores[1:]))


async def test_a_gateway_that_was_killed_is_counted_no_more(
    server: ThrottrServer, make_store: MakeStore
) -> None:
    """Its place is free after some beats."""
    options = {"domain": "killed", "heartbeat_s": 0.1}
    first, second = [await ready(make_store(server.url, **options)) for _ in range(2)]
    await until(lambda: first.gateways == second.gateways == 2)
    # As if it were killed: what `aclose` does, but for the word to the server.
    await second._heartbeat._beating.end()
    await until(lambda: first.gateways == 1)


@pytest.mark.parametrize("size", [8, 32, 64])
async def test_a_server_of_another_size(
    server: ThrottrServer, make_store: MakeStore, size: int
) -> None:
    """It is found out when the connection is made, and no decision is ever made with it."""
    store = make_store(server.url.replace("size=16", f"size={size}"))
    await store.start()
    await reason_becomes(store, "handshake")
    assert f"{size} bits" in repr(store)


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100, b"\1" * 100, b"\2", b""]
)
async def test_something_else_that_answers(make_store: MakeStore, said: bytes) -> None:
    """A web server, noise, or a closed connection: it is not a Throttr server."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(said)
        await writer.drain()

    async with Rude(serve) as rude:
        store = make_store(rude.url)
        await store.start()
        await reason_becomes(store, "handshake")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"\1\1\1\5\0\7\0\0", StoreReplyError),
        (b"\3", StoreReplyError),
        (b"\1\1\1\5\0", StoreUnavailable),
        (b"", StoreUnavailable),
    ],
    ids=["unit", "status", "cut off", "closed"],
)
async def test_an_answer_that_is_none(
    make_store: MakeStore, said: bytes, kind: type[StoreError]
) -> None:
    """Its caller gets an error, and the connection is closed: what follows is unknown."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)
        await reader.read(1)
        writer.write(said)
        await writer.drain()

    async with Rude(serve) as rude:
        # No beat: nothing but the decision is said on the connection.
        store = make_store(rude.url, heartbeat_s=60)
        await store.start()
        await store._heartbeat._beating.end()
        await until(lambda: store.is_ready)
        before = rude.connections
        results = await asyncio.gather(
            store.decide([ask(LIMIT)]), store.decide([ask(LIMIT)]), return_exceptions=True
        )
        assert isinstance(results[-1], StoreError)
        assert any(type(result) is kind for result in results)
        await until(lambda: rude.connections > before)


async def test_unanswered_calls_do_not_pile_up(
    server: ThrottrServer, make_store: MakeStore
) -> None:
    """While a server is frozen, only so much is sent; the rest fails at once."""
    store = await ready(make_store(server.url, heartbeat_s=60))
    server.freeze()
    batch = [ask(LIMIT, f"{number}") for number in range(100)]
    enough = MAX_UNANSWERED // (3 * len(batch))
    calls = [asyncio.create_task(store.decide(batch)) for _ in range(enough + 10)]
    await until(lambda: sum(call.done() for call in calls) >= 9)
    reasons = {
        error.reason
        for call in calls
        if call.done()
        if isinstance(error := call.exception(), StoreError)
    }
    assert reasons == {"backlog"}
    server.thaw()
    await asyncio.gather(*calls, return_exceptions=True)
    assert await outcome(store) == ""


@pytest.mark.parametrize(
    "url",
    [
        "throttr+v5://",
        "throttr+v5://host?size=24",
        "throttr+v5://host?bits=16",
        "throttr+v5://h?size=",
    ],
)
def test_a_url_that_cannot_be_used(url: str) -> None:
    """The error is raised when the store is created."""
    with pytest.raises(ValueError, match="such as"):
        parse_throttr_url(url)
