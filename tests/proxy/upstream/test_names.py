"""Names of targets: which of their addresses are connected to, and what becomes of old ones."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import UpstreamConnectError
from gateway.config.models.gateway import UpstreamConfig
from gateway.observe.metrics import UpstreamMetrics
from gateway.proxy.upstream.addresses import MAX_ADDRESSES, SKIP_US, Addresses
from gateway.proxy.upstream.connecting import NEXT_S, race
from gateway.proxy.upstream.connection import UpstreamConnection
from gateway.proxy.upstream.names import PAUSE_S, UNKNOWN_S, Name
from gateway.proxy.upstream.targets import Upstream
from tests import virtual_time
from tests.proxy.wire import OK, Peer, ScriptedUpstream, get, running
from tests.servers import until

FOUR = ("10.0.0.1", "10.0.0.2")
SIX = ("fd00::1", "fd00::2")

# Which address is next.


def test_new_connections_are_spread_over_all_addresses() -> None:
    """Each is first once in a round, whatever the resolver shuffles."""
    addresses = Addresses()
    assert addresses.order(0) == []
    assert addresses.replace(FOUR) == frozenset()
    first = [addresses.order(0)[0] for _ in range(3)]
    addresses.replace(FOUR[::-1])
    first += [addresses.order(0)[0] for _ in range(3)]
    assert first == [*FOUR, *FOUR, *FOUR]
    assert repr(addresses) == "<Addresses 10.0.0.1, 10.0.0.2>"


def test_families_take_turns() -> None:
    """Where one of the two leads nowhere, the second attempt is of the other one."""
    addresses = Addresses()
    addresses.replace([*SIX, *FOUR])
    assert addresses.order(0) == [SIX[0], FOUR[0], SIX[1], FOUR[1]]
    assert addresses.order(0) == [SIX[1], FOUR[0], SIX[0], FOUR[1]]
    assert addresses.order(0) == [FOUR[0], SIX[0], FOUR[1], SIX[1]]


def test_an_address_that_failed_comes_last_for_a_while() -> None:
    """And it is not forgotten: it may be the only one that works."""
    addresses = Addresses()
    addresses.replace(FOUR)
    addresses.failed(FOUR[0], 0)
    assert addresses.order(SKIP_US - 1) == [FOUR[1], FOUR[0]]
    assert addresses.order(SKIP_US - 1) == [FOUR[1], FOUR[0]]
    assert addresses.order(SKIP_US) == [FOUR[0], FOUR[1]]
    addresses.failed(FOUR[1], SKIP_US)
    addresses.worked(FOUR[1])
    assert addresses.order(SKIP_US)[0] == FOUR[1]


@given(st.lists(st.lists(st.sampled_from([*FOUR, *SIX]), max_size=6), max_size=8))
def test_every_address_is_tried_once(lookups: list[list[str]]) -> None:
    """The order has all known addresses and no other, and removed ones are reported."""
    addresses = Addresses()
    known: set[str] = set()
    for found in lookups:
        assert addresses.replace(found) == known - set(found)
        known = set(found)
        order = addresses.order(0)
        assert sorted(order) == sorted(known)


def test_a_name_may_have_too_many_addresses() -> None:
    """What is kept is bounded."""
    addresses = Addresses()
    addresses.replace(f"10.0.{number // 256}.{number % 256}" for number in range(1000))
    assert len(addresses.known) == MAX_ADDRESSES


# When it is looked up.


class Resolver:
    """Answers as told, and remembers when it was asked."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self._answers = answers
        self.asked: list[float] = []

    async def __call__(self, host: str) -> Sequence[str]:
        """The next answer, or the last one again."""
        self.asked.append(asyncio.get_running_loop().time())
        answer = self._answers[min(len(self.asked), len(self._answers)) - 1]
        if isinstance(answer, OSError):
            raise answer
        return answer

    @property
    def pauses(self) -> list[float]:
        """Seconds between two times it was asked."""
        return [b - a for a, b in zip(self.asked, self.asked[1:], strict=False)]


UNKNOWN = OSError(-2, "Name or service not known")


def named(
    resolver: Resolver,
    every_s: float | None = 30,
    on_gone: Callable[[frozenset[str]], None] = print,
) -> Name:
    """A name that this resolver knows."""
    return Name("app.test", every_s, on_gone, resolver)


def test_a_name_is_looked_up_again_and_again() -> None:
    """At intervals, and removed addresses are reported."""

    async def run() -> None:
        gone: list[frozenset[str]] = []
        resolver = Resolver(FOUR, FOUR, FOUR[1:])
        name = named(resolver, on_gone=gone.append)
        name.start()
        name.start()
        await asyncio.sleep(100)
        name.close()
        assert resolver.pauses == pytest.approx([30, 30, 30], abs=0.1)
        assert gone == [frozenset(FOUR[:1])]
        assert name.addresses.known == FOUR[1:]

    virtual_time.run(run())


def test_a_failure_hurries_the_next_lookup() -> None:
    """At once, but not more than once a second; also where it is not looked up by itself."""

    async def run() -> None:
        for every_s in (30, None):
            resolver = Resolver(FOUR)
            name = named(resolver, every_s)
            await name.ready()
            for _ in range(20):
                name.refresh_soon()
                await asyncio.sleep(0.1)
            await asyncio.sleep(20)
            name.close()
            assert 2 <= len(resolver.asked) <= 4
            assert min(resolver.pauses) >= PAUSE_S

    virtual_time.run(run())


def test_a_name_that_is_not_known_yet(caplog: pytest.LogCaptureFixture) -> None:
    """Waiting requests get the reason; it is looked up until it is known, and both are logged."""

    async def run() -> None:
        resolver = Resolver(UNKNOWN, UNKNOWN, FOUR, UNKNOWN)
        name = named(resolver)
        with pytest.raises(
            UpstreamConnectError, match=r"app\.test cannot be resolved: Name or ser"
        ):
            await name.ready()
        await asyncio.sleep(3 * UNKNOWN_S)
        await name.ready()
        assert name.addresses.known == FOUR
        assert repr(name) == "<Name app.test: <Addresses 10.0.0.1, 10.0.0.2>>"
        await asyncio.sleep(40)
        assert name.addresses.known == FOUR
        name.close()

    with caplog.at_level("INFO", "gateway.proxy.upstream.names"):
        virtual_time.run(run())
    assert [record.getMessage().partition(" (")[0] for record in caplog.records] == [
        "app.test cannot be resolved",
        "app.test is resolved again: 10.0.0.1, 10.0.0.2",
        "app.test cannot be resolved",
    ]


# Real connections. 127.0.0.0/8 is all this machine's: as many addresses as a test wants.


@pytest.fixture(name="port")
def _port() -> int:
    """A port that is free on every address of the loopback interface."""
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104 - nobody listens on it
        port: int = server.getsockname()[1]
        return port


@contextmanager
def full(address: str, port: int) -> Iterator[None]:
    """A server whose queue is full: attempts to connect are neither taken nor refused."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind((address, port))
        listener.listen(0)
        for _ in range(8):
            client = sockets.enter_context(socket.socket())
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect((address, port))
        yield


async def test_the_first_that_answers_is_taken(port: int) -> None:
    """One that refuses is skipped immediately, and comes last from then on."""
    addresses = Addresses()
    addresses.replace(["127.0.0.2", "127.0.0.3"])
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.3", port)
    async with server:
        address, sock = await race(addresses, addresses.order(0), port)
        assert (address, sock.getpeername()) == ("127.0.0.3", ("127.0.0.3", port))
        sock.close()
        assert addresses.order(0)[0] == "127.0.0.3"
    with pytest.raises(OSError, match=r"refused|111"):
        await race(addresses, addresses.order(0), port)
    with pytest.raises(OSError, match="no address"):
        await race(addresses, [], port)


async def test_who_is_silent_is_not_waited_for(port: int) -> None:
    """After a quarter of a second the next is tried as well, and the first one given up."""
    loop = asyncio.get_running_loop()
    with full("127.0.0.2", port):
        server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.3", port)
        async with server:
            addresses = Addresses()
            addresses.replace(["127.0.0.2", "127.0.0.3"])
            began_at = loop.time()
            address, sock = await race(addresses, addresses.order(0), port)
            sock.close()
            assert address == "127.0.0.3"
            assert loop.time() - began_at >= NEXT_S * 0.9
            assert addresses.order(0)[-1] == "127.0.0.2"


@asynccontextmanager
async def servers(port: int, *addresses: str) -> AsyncIterator[list[str]]:
    """A server on each address; gives the addresses that were connected to, in order."""
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("sockname")[0])
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(OK)
        writer.close()

    async with AsyncExitStack() as stack:
        for address in addresses:
            server = await asyncio.start_server(serve, address, port)
            await stack.enter_async_context(server)
        yield seen


async def exchange(connection: UpstreamConnection) -> None:
    """One request and its answer."""
    connection.begin(get(), is_head=False, on_interim=None, is_whole=True)
    await connection.head()
    assert await connection.read() == b"ok"


async def test_connections_are_spread_and_retired(port: int) -> None:
    """Those to an address that is gone serve no more requests: at once, or when they are free."""
    both = ("127.0.0.2", "127.0.0.3")
    resolver = Resolver(both, both[1:])
    config = UpstreamConfig.model_validate({"targets": f"http://app.test:{port}"})
    upstream = Upstream("u", config, UpstreamMetrics(), 16_384, look_up=resolver)
    upstream.start()
    pool = upstream.pick()
    async with servers(port, *both) as seen:
        connections = [await pool.connect() for _ in range(4)]
        for connection in connections:
            await exchange(connection)
        assert sorted(seen) == sorted(both * 2)
        for connection in connections[:2]:
            pool.give_back(connection)
        # A connection that cannot be made is a reason to look the name up again.
        named_by_pool = pool._named
        assert named_by_pool is not None
        named_by_pool.refresh_soon()
        await until(lambda: len(resolver.asked) > 1)
        await until(lambda: not connections[0].is_open)
        assert [one.is_open for one in connections] == [False, True, True, True]
        for connection in connections[2:]:
            pool.give_back(connection)
        assert [one.is_open for one in connections] == [False, True, False, True]
        assert {one.address for one in pool._open if one.is_open} == {"127.0.0.3"}
        upstream.close()
        await until(lambda: not pool._open)
        assert not pool._retired


async def test_a_name_with_both_families(tmp_path: Path) -> None:
    """The server listens on IPv4 only; requests never see that localhost is ::1 as well."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        peer.close()

    async with ScriptedUpstream(script) as upstream:
        url = upstream.url.replace("127.0.0.1", "localhost")
        async with running(tmp_path, url) as run:
            client = await run.client()
            assert [(await client.get()).status for _ in range(6)] == [200] * 6
    assert len(upstream.peers) == 6
