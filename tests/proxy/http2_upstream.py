"""An upstream that speaks HTTP/2 and does as told: frames by `h2`, which judges what it is sent.

`h2` is another implementation than the gateway's, and refuses what RFC 9113 forbids to clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    PingReceived,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from tests.breaking import abort, reset

OK_FIELDS: Final = (("content-length", "2"),)

Pairs = tuple[tuple[str, str], ...]


class Call:
    """One request, and what is answered.

    Attributes:
        fields: of the request, pseudo-header fields first.
        reset_by: the error code with which the gateway has reset the stream; None if it has not.
        has_ended: whether the request is complete.
    """

    def __init__(self, upstream: H2Upstream, peer: H2Peer, number: int, fields: Pairs) -> None:
        self._upstream = upstream
        self.peer = peer
        self.number = number
        self.fields = fields
        self.body = bytearray()
        self.has_ended = False
        self.reset_by: int | None = None
        self.trailers: Pairs = ()
        self.news = asyncio.Event()
        self.does_read = True

    @property
    def line(self) -> str:
        """Method and path."""
        return f"{self.get(':method')} {self.get(':path')}"

    def get(self, name: str) -> str | None:
        """The value of a field."""
        return dict(self.fields).get(name)

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so."""
        while not is_so():
            self.news.clear()
            await self.news.wait()

    async def whole(self) -> bytes:
        """The body, once it has ended."""
        await self.until(lambda: self.has_ended)
        return bytes(self.body)

    def inform(self, status: int, *fields: tuple[str, str]) -> None:
        """Send an interim answer."""
        self.peer.h2.send_headers(self.number, [(":status", str(status)), *fields])
        self.peer.flush()

    def respond(self, status: int = 200, *fields: tuple[str, str], ends: bool = False) -> None:
        """Send the head of the answer."""
        self.peer.h2.send_headers(self.number, [(":status", str(status)), *fields], end_stream=ends)
        self.peer.flush()

    async def send(self, data: bytes, *, ends: bool = False) -> None:
        """Send a piece of the body, as the gateway's windows allow."""
        at = 0
        h2 = self.peer.h2
        while at < len(data):
            room = min(h2.local_flow_control_window(self.number), h2.max_outbound_frame_size)
            if room <= 0:
                self.news.clear()
                await self.news.wait()
                continue
            h2.send_data(self.number, data[at : at + room])
            at += room
            self.peer.flush()
            await self.peer.writer.drain()
        if ends:
            h2.end_stream(self.number)
            self.peer.flush()

    async def answer(
        self, body: bytes = b"ok", *fields: tuple[str, str], status: int = 200, trailers: Pairs = ()
    ) -> None:
        """Send a whole answer."""
        self.respond(status, *fields, ends=not body and not trailers)
        if body:
            await self.send(body, ends=not trailers)
        if trailers:
            self.trail(*trailers)

    def trail(self, *trailers: tuple[str, str]) -> None:
        """End the answer with trailers."""
        self.peer.h2.send_headers(self.number, list(trailers), end_stream=True)
        self.peer.flush()

    def reset(self, code: ErrorCodes = ErrorCodes.INTERNAL_ERROR) -> None:
        """Reset the stream."""
        self.peer.h2.reset_stream(self.number, code)
        self.peer.flush()


class H2Peer:
    """One connection from the gateway.

    Attributes:
        calls: its requests, in order.
        pings: how many PING frames came.
        goaway: the error code of the gateway's GOAWAY frame; None without one.
    """

    def __init__(
        self,
        upstream: H2Upstream,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._upstream = upstream
        self.reader = reader
        self.writer = writer
        self.calls: list[Call] = []
        self.open: dict[int, Call] = {}
        self.pings = 0
        self.goaway: int | None = None
        self.is_frozen = False
        self.has_ended = asyncio.Event()
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="latin-1"))

    def flush(self) -> None:
        """Send what is ready."""
        self.writer.write(self.h2.data_to_send())

    def close(self) -> None:
        """Close in order (FIN)."""
        self.writer.close()

    def reset(self) -> None:
        """Break the connection off (RST)."""
        reset(self.writer)

    def go_away(self, last: int, code: ErrorCodes = ErrorCodes.NO_ERROR) -> None:
        """Take no more requests, and none of those after `last`."""
        # Not through `h2`, which would end the connection in both directions.
        payload = last.to_bytes(4, "big") + int(code).to_bytes(4, "big")
        self.writer.write(b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + payload)
        self._upstream.ended_after[self] = last

    async def run(self) -> None:
        """Read until the gateway closes."""
        values = dict(self.h2.local_settings) | self._upstream.settings
        self.h2.local_settings = Settings(client=False, initial_values=values)
        self.h2.initiate_connection()
        self.flush()
        while data := await self.reader.read(65_536):
            if self.is_frozen:
                continue
            events = self.h2.receive_data(data)
            for event in events:
                self._take(event)
            self.flush()

    def _take(self, event: object) -> None:
        last = self._upstream.ended_after.get(self, 1 << 31)
        number: Any = getattr(event, "stream_id", 0) or 0
        if number > last:
            return
        call = self.open.get(number)
        if isinstance(event, RequestReceived):
            fields: Any = tuple(event.headers)
            call = Call(self._upstream, self, number, fields)
            self.calls.append(call)
            self.open[number] = call
            self._upstream.received(call)
        elif isinstance(event, DataReceived) and call is not None:
            call.body += event.data
            if call.does_read:
                self.h2.acknowledge_received_data(event.flow_controlled_length, number)
        elif isinstance(event, TrailersReceived) and call is not None:
            trailers: Any = tuple(event.headers)
            call.trailers = trailers
        elif isinstance(event, StreamEnded) and call is not None:
            call.has_ended = True
        elif isinstance(event, StreamReset) and call is not None:
            call.reset_by = int(event.error_code)
        else:
            self._note(event)
        if call is not None:
            call.news.set()

    def _note(self, event: object) -> None:
        if isinstance(event, PingReceived):
            self.pings += 1
        elif isinstance(event, ConnectionTerminated):
            self.goaway = int(event.error_code or 0)
        elif isinstance(event, WindowUpdated):
            for each in self.open.values():
                each.news.set()


Serve = Callable[[Call], Awaitable[None]]


class H2Upstream:
    """A server of HTTP/2 whose requests are served by a function, each in a task of its own.

    Args:
        serve: answers a request.
        tls: what TLS needs; None for none.
        settings: what the gateway is told.

    Attributes:
        calls: all requests, in the order in which they came.
        peers: all connections.
    """

    def __init__(
        self,
        serve: Serve,
        tls: ssl.SSLContext | None = None,
        settings: dict[SettingCodes, int] | None = None,
    ) -> None:
        self._serve = serve
        self._tls = tls
        self.settings: dict[Any, int] = dict(settings or {})
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.calls: list[Call] = []
        self.peers: list[H2Peer] = []
        self.ended_after: dict[H2Peer, int] = {}
        self.flaws: list[BaseException] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
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
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self.peers:
            abort(peer.writer)
        if error is None:
            for flaw in self.flaws:
                raise flaw

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = H2Peer(self, reader, writer)
        self.peers.append(peer)
        self._start(self._run(peer))

    def received(self, call: Call) -> None:
        """Serve a request."""
        self.calls.append(call)
        self._start(self._call(call))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, peer: H2Peer) -> None:
        try:
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await peer.run()
        except (ProtocolError, AssertionError, pytest.fail.Exception) as flaw:
            # The gateway has sent what no client may.
            self.flaws.append(flaw)
        finally:
            peer.has_ended.set()
            with contextlib.suppress(Exception):
                peer.writer.close()

    async def _call(self, call: Call) -> None:
        try:
            # A stream that the gateway has reset takes nothing more.
            with contextlib.suppress(ConnectionError, ProtocolError):
                await self._serve(call)
        except (AssertionError, pytest.fail.Exception) as flaw:
            self.flaws.append(flaw)


async def echo(call: Call) -> None:
    """Answer with the body, or with method and path."""
    body = await call.whole()
    await call.answer(body or call.line.encode())


def answering(body: bytes = b"ok", *fields: tuple[str, str], **options: Any) -> H2Upstream:
    """An upstream that answers all requests alike."""

    async def serve(call: Call) -> None:
        await call.whole()
        await call.answer(body, *fields, **options)

    return H2Upstream(serve)
