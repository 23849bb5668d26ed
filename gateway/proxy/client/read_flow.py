"""Backpressure on a client: the gateway stops reading while it holds as much as it may.

Two buffers may each hold a client back: the body of the present request, and what lies behind that
request. Bodies are in aiohttp's `StreamReader`, which says by aiohttp's flow control
(`BaseProtocol`) when it is full. To that, a `ReadFlow` is the transport, and the parser that has to
stop as well.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from aiohttp.streams import StreamReader

from gateway.proxy.client.hang_up import HangUpWatch

BODY_BUFFER: Final = 128 * 1024
"""Bytes of a request's body that lie here before the client is held back (twice as many)."""

AHEAD_MAX: Final = 64 * 1024
"""Bytes behind the present request that lie here before the client is held back."""


class ReadFlow:
    """Pauses and resumes reading from one client.

    While nothing is read, it looks whether the client has reset the connection.
    """

    __slots__ = ("_hang_up_watch", "_has_much_ahead", "_is_body_full", "_streams", "_transport")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._is_body_full = False
        self._has_much_ahead = False
        self._hang_up_watch: HangUpWatch | None = None
        self._streams: BaseProtocol | None = None

    def __repr__(self) -> str:
        return f"<ReadFlow{' paused' if self.is_paused else ''}>"

    @property
    def is_paused(self) -> bool:
        """Whether nothing is read for now."""
        return self._is_body_full or self._has_much_ahead

    def start(self, transport: asyncio.Transport) -> None:
        """Begin with a transport that is being read from."""
        self._transport = transport

    def stop(self) -> None:
        """Forget the transport: it is closed, or read from for another purpose."""
        self._transport = None
        self._is_body_full = self._has_much_ahead = False
        if self._streams is not None:
            # To streams that are waited on, the connection is lost.
            self._streams.transport = None
            self._streams = None

    def new_body(self) -> StreamReader:
        """Return a stream for the body of the next request."""
        loop = asyncio.get_running_loop()
        if self._streams is None:
            self._streams = BaseProtocol(loop, cast("HttpRequestParser", self))
            self._streams.transport = cast("asyncio.Transport", self)
        return StreamReader(self._streams, BODY_BUFFER, loop=loop)

    def pause_if_ahead(self, size: int) -> None:
        """Pause if too many bytes lie behind the present request."""
        if size > AHEAD_MAX:
            self._pause()
            self._has_much_ahead = True

    def resume_if_behind(self, size: int) -> None:
        """Resume if few bytes are left behind the present request."""
        if self._has_much_ahead and size <= AHEAD_MAX // 2:
            self._has_much_ahead = False
            self._resume()

    def read_on(self) -> None:
        """Read, however much is here already: what comes from now on is thrown away."""
        self._is_body_full = self._has_much_ahead = False
        self._resume()

    # What aiohttp's flow control calls.

    def pause_reading(self) -> None:
        """Note that as much of the body is here as there may be."""
        self._pause()
        self._is_body_full = True

    def resume_reading(self) -> None:
        """Note that there is room for more of it."""
        if self._is_body_full:
            self._is_body_full = False
            self._resume()

    def _pause(self) -> None:
        transport = self._transport
        if self.is_paused or transport is None or transport.is_closing():
            return
        transport.pause_reading()
        if self._hang_up_watch is None:
            self._hang_up_watch = HangUpWatch(lambda: self.is_paused, transport.abort)
        self._hang_up_watch.begin(transport)

    def _resume(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self.is_paused:
            transport.resume_reading()
