"""Backpressure on a client: the gateway stops reading when its buffers are full.

Two buffers may each stop reading: the body of the present request, and the bytes after that
request. Bodies are in aiohttp's `StreamReader`, which reports by aiohttp's flow control
(`BaseProtocol`) when it is full. For aiohttp, a `ReadFlow` is both the transport and the parser to
pause.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser
from aiohttp.streams import StreamReader

from gateway.proxy.client.hang_up import HangUpWatch

BODY_BUFFER: Final = 128 * 1024
"""Bytes of a request's body buffered before reading pauses (twice as many)."""

AHEAD_MAX: Final = 64 * 1024
"""Bytes after the present request buffered before reading pauses."""


class ReadFlow:
    """Pauses and resumes reading from one client.

    While reading is paused, it checks whether the client has reset the connection.
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
        """Return whether reading is paused."""
        return self._is_body_full or self._has_much_ahead

    def start(self, transport: asyncio.Transport) -> None:
        """Start with a transport that is being read."""
        self._transport = transport

    def stop(self) -> None:
        """Drop the transport: it is closed, or read for another purpose."""
        self._transport = None
        self._is_body_full = self._has_much_ahead = False
        if self._streams is not None:
            # Waiting readers of the streams see a lost connection.
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
        """Pause if too many bytes are buffered after the present request."""
        if size > AHEAD_MAX:
            self._pause()
            self._has_much_ahead = True

    def resume_if_behind(self, size: int) -> None:
        """Resume if few bytes are left after the present request."""
        if self._has_much_ahead and size <= AHEAD_MAX // 2:
            self._has_much_ahead = False
            self._resume()

    def read_on(self) -> None:
        """Read regardless of the buffers: everything from now on is discarded."""
        self._is_body_full = self._has_much_ahead = False
        self._resume()

    # What aiohttp's flow control calls.

    def pause_reading(self) -> None:
        """Note that the buffer of the body is full."""
        self._pause()
        self._is_body_full = True

    def resume_reading(self) -> None:
        """Note that the buffer of the body has room."""
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
