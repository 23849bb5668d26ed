"""Both ends of the gateway as raw bytes: a scripted upstream, a client, and a gateway between.

The gateway runs in the test's own event loop, on ports of loopback. `running` looks, when a
test is over, whether anything was left behind: a connection, a task, a deadline, a complaint
in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from gateway.config.models.gateway import GatewayConfig
from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.upstream.http2.pool import StreamPool
from gateway.wiring.gateway import Gateway
from gateway.wiring.worker_resources import WorkerResources
from tests.breaking import abort, reset
from tests.servers import until

PATIENCE_S: Final = 20.0
"""How long anything may take that is to happen at once."""

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """A gateway's connection, seen from an upstream."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.number = number

    async def head(self) -> bytes:
        """The head of the next request; empty if the gateway closed."""
        try:
            return await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def request(self) -> bytes:
        """The next request, its body included (de-chunked); empty if the gateway closed."""
        head = await self.head()
        lower = head.lower()
        if b"\r\ncontent-length:" in lower:
            size = int(lower.split(b"\r\ncontent-length:")[1].split(b"\r\n")[0])
            return head + await self.reader.readexactly(size)
        if b"\r\ntransfer-encoding:" in lower:
            return head + await self._chunks()
        return head

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        assert await self.reader.readline() == b"\r\n"
        return body

    async def send(self, data: bytes) -> None:
        """Write, no faster than the gateway reads."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def at_end(self) -> bytes:
        """Whatever else the gateway sends until it closes."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    def close(self) -> None:
        """Close in order (FIN)."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection off (RST)."""
        reset(self.writer)


Script = Callable[[Peer], Awaitable[None]]


class ScriptedUpstream:
    """A TCP server that runs a script for each connection.

    Attributes:
        requests: every request whose head arrived, as `answering` read it.
        peers: every connection.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.requests: list[bytes] = []
        self.peers: list[Peer] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self.peers:
            abort(peer.writer)
        for result in results:
            # The time limit of a test may end what happens to run, such as one of these.
            if isinstance(result, AssertionError | pytest.fail.Exception):
                raise result

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, len(self.peers))
        self.peers.append(peer)
        self._tasks.add(asyncio.get_running_loop().create_task(self._run(peer)))

    async def _run(self, peer: Peer) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._script(peer)


def answering(*answers: bytes, pause: float = 0.0, step: int = 0) -> ScriptedUpstream:
    """An upstream that gives these answers, one a request and then the last again.

    Args:
        answers: raw bytes.
        pause: seconds before each piece of an answer.
        step: the size of a piece; 0 for the whole answer in one.
    """
    count = 0

    async def script(peer: Peer) -> None:
        nonlocal count
        while request := await peer.request():
            upstream.requests.append(request)
            answer = answers[min(count, len(answers) - 1)]
            count += 1
            for start in range(0, len(answer), step or len(answer)):
                if pause or step:
                    await asyncio.sleep(pause)
                await peer.send(answer[start : start + (step or len(answer))])

    upstream = ScriptedUpstream(script)
    return upstream


def answering_and_closing(answer: bytes, *, reset: bool = False) -> ScriptedUpstream:
    """An upstream that answers the first request of a connection and ends the connection."""

    async def script(peer: Peer) -> None:
        upstream.requests.append(await peer.request())
        await peer.send(answer)
        if reset:
            # Let the answer arrive: a reset overtakes what was not read yet.
            await asyncio.sleep(0.02)
            peer.reset()
        else:
            peer.close()

    upstream = ScriptedUpstream(script)
    return upstream


class Answer:
    """An answer as a client read it: status, fields in order, body."""

    def __init__(self, head: bytes, body: bytes, *, is_whole: bool) -> None:
        lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        self.status = int(lines[0].split(b" ")[1])
        self.first = lines[0]
        self.fields = [
            (n.lower(), v.strip()) for n, _, v in (li.partition(b":") for li in lines[1:])
        ]
        self.body = body
        self.is_whole = is_whole

    def all(self, name: bytes) -> list[bytes]:
        """The values of a field."""
        return [value for field, value in self.fields if field == name.lower()]

    def get(self, name: bytes) -> bytes:
        """The value of a field that is there once; empty if it is not there."""
        values = self.all(name)
        assert len(values) <= 1, (name, values)
        return values[0] if values else b""


class Client:
    """A raw connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        """Write at once."""
        self.writer.write(data)

    async def read(self, *, is_head: bool = False) -> Answer:
        """The next final or interim answer, judged by its framing alone (RFC 9112, 6.3)."""
        async with asyncio.timeout(PATIENCE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            answer = Answer(head, b"", is_whole=True)
            if answer.status < 200 or answer.status in (204, 304) or is_head:
                return answer
            try:
                answer.body = await self._body(answer)
            except (asyncio.IncompleteReadError, ConnectionError, ValueError):
                answer.is_whole = False
        return answer

    async def _body(self, answer: Answer) -> bytes:
        if coding := answer.get(b"Transfer-Encoding"):
            assert coding == b"chunked"
            assert not answer.all(b"Content-Length")
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            assert await self.reader.readexactly(2) == b"\r\n"
            return body
        if answer.all(b"Content-Length"):
            return await self.reader.readexactly(int(answer.get(b"Content-Length")))
        return await self.reader.read()

    async def ask(self, request: bytes, *, is_head: bool = False) -> Answer:
        """Send and read one answer."""
        self.send(request)
        return await self.read(is_head=is_head)

    async def get(self, path: str = "/") -> Answer:
        """A plain GET."""
        return await self.ask(get(path))

    def reset(self) -> None:
        """Break the connection off (RST)."""
        reset(self.writer)

    async def at_end(self) -> bytes:
        """All that comes until the gateway closes; fails if it resets the connection."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read()

    async def is_closed(self) -> bool:
        """Whether the gateway has closed, or does within a moment."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        """Leave."""
        self.writer.close()


def get(path: str = "/", *fields: str) -> bytes:
    """A GET request."""
    lines = "".join(f"{field}\r\n" for field in fields)
    return f"GET {path} HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n".encode("latin-1")


def post(body: bytes, *fields: str, path: str = "/") -> bytes:
    """A POST request with a body of known length."""
    lines = "".join(f"{field}\r\n" for field in fields)
    head = f"POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {len(body)}\r\n{lines}\r\n"
    return head.encode("latin-1") + body


class Running:
    """A gateway that serves, with clients of the test's own."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.clients: list[Client] = []

    async def client(self, *, receive_buffer: int = 0) -> Client:
        """A new connection."""
        address = self.gateway.addresses[0]
        # asyncio turns Nagle off only for a socket that says it is of TCP.
        sock = socket.socket(proto=socket.IPPROTO_TCP)
        sock.setblocking(False)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await asyncio.get_running_loop().sock_connect(sock, (address.host, address.port))
        limit = receive_buffer or 2**16
        client = Client(*await asyncio.open_connection(sock=sock, limit=limit))
        self.clients.append(client)
        return client

    @property
    def connections(self) -> list[ClientConnection]:
        """The gateway's connections, where all clients speak HTTP/1.1."""
        clients = self.gateway._proxy._clients
        return [client for client in clients if isinstance(client, ClientConnection)]

    async def ask(self, request: bytes) -> Answer:
        """One request on a connection of its own."""
        client = await self.client()
        answer = await client.ask(request)
        client.close()
        return answer

    def upstream(self, name: str = "u") -> Any:
        """The run-time form of an upstream."""
        return self.gateway._running.upstreams[name]

    def leftovers(self) -> list[str]:
        """What is there that an idle gateway would not have, idle connections aside."""
        proxy: Any = self.gateway._proxy
        decider: Any = self.gateway._running.decider
        found = {
            "client connections": len(proxy._clients),
            "connections counted": self.gateway.metrics.connections,
            "uploads": len(proxy._driver),
            "waiting requests": len(decider.waiting),
            "waiting queues": len(decider.waiting._queues),
            "decider tasks": len(decider._tasks),
        }
        for upstream in self.gateway._running.upstreams.values():
            counted = upstream.metrics.connections
            for pool in upstream._pools:
                if isinstance(pool, StreamPool):
                    counted -= len(pool._connections)
                    found[f"{pool.name}: opening"] = pool._opening
                else:
                    counted -= len(pool._open)
                found[f"{pool.name}: connecting"] = pool._connecting
                found[f"{pool.name}: pending"] = len(pool._pending)
                found[f"{pool.name}: lent"] = len(pool._open) - len(pool._idle)
                dead = sum(not connection.is_open for connection in pool._idle)
                found[f"{pool.name}: dead but idle"] = dead
            found[f"{upstream.name}: wrongly counted"] = counted
        return [f"{count} {what}" for what, count in found.items() if count]

    async def settle(self) -> None:
        """Close all clients, and wait until the gateway has nothing to do."""
        for client in self.clients:
            client.close()
        try:
            await until(lambda: not self.leftovers(), PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"left behind: {self.leftovers()}") from None


@asynccontextmanager
async def running(
    folder: Path, upstream: ScriptedUpstream | str = "", complaint: str = "", **settings: Any
) -> AsyncIterator[Running]:
    """A gateway with one upstream `u` and one route to it; looks after itself at the end.

    Args:
        folder: for the log.
        upstream: where all requests go.
        complaint: what the gateway may log at a level of warning and above.
        settings: of the configuration; `route` and `u` are those of the route and upstream.
    """
    config = config_of(folder, upstream, **settings)
    others = set(asyncio.all_tasks())
    gateway = make_gateway(config)
    complaints = _Complaints(logging.WARNING)
    root = logging.getLogger()
    handlers = root.handlers[:]
    root.handlers = [complaints]
    run = Running(gateway)
    try:
        await gateway.start()
        yield run
        await run.settle()
    finally:
        for client in run.clients:
            abort(client.writer)
        await gateway.stop(0)
        root.handlers = handlers
    # Tasks of a peer end a turn after the connection.
    for _ in range(5):
        await asyncio.sleep(0)
    ours = [task for task in set(asyncio.all_tasks()) - others if "gateway" in repr(task)]
    assert not ours, ours
    unexpected = [line for line in complaints.lines if not complaint or complaint not in line]
    assert not unexpected, unexpected


def config_of(
    folder: Path, upstream: ScriptedUpstream | str = "", **settings: Any
) -> dict[str, Any]:
    """The configuration of `running`, with the same arguments."""
    url = upstream if isinstance(upstream, str) else upstream.url
    return {
        "listen": "127.0.0.1:0",
        "admin": "off",
        "log": {"output": str(folder / "log"), "access": False},
        "upstreams": {"u": {"targets": url, **settings.pop("u", {})}},
        "routes": {"/**": {"upstream": "u", **settings.pop("route", {})}},
        **settings,
    }


def make_gateway(
    config: dict[str, Any] | GatewayConfig, seat: WorkerResources | None = None
) -> Gateway:
    """A gateway that leaves the test's own logging alone."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    gateway = Gateway(GatewayConfig.model_validate(config), seat)
    root.handlers = handlers
    return gateway


class _Complaints(logging.Handler):
    """What the gateway had to say, warnings and worse."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # Scripted upstreams may go on writing after the gateway has closed.
        if record.getMessage() != "socket.send() raised exception.":
            self.lines.append(self.format(record))
