"""A way to an upstream for one exchange at a time, whatever the version of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from gateway.base.errors import UpstreamClosedError, UpstreamError, UpstreamTimeout
from gateway.proxy.upstream.answer_reader import AnswerReader, Informational


class UpstreamTimeouts(NamedTuple):
    """Time limits of exchanges, in seconds; `inf` for none."""

    first_byte: float
    idle: float
    total: float
    keepalive: float
    tunnel: float


class UpstreamConnection:
    """What an exchange sends its request over, and reads the answer from.

    Use: `begin`, any number of `write`s and `finish_body`, `await head()` or the callback of
    `begin`, then `await read()` until it returns nothing. Its watch calls `expire` once the loop's
    time is past `due`. With HTTP/1.1 it is a connection that exchanges use one after the other;
    with HTTP/2, a stream for one exchange.

    Args:
        answer: reads the answer.
        timeouts: its time limits.
        address: of the other end, if the name has several.

    Attributes:
        answer: the part of the answer that has arrived.
        error: why the answer broke off, if it did.
        address: as given.
        due: the loop's time at which the exchange is late; `inf` for never.
    """

    __slots__ = (
        "_drained",
        "_first_byte_s",
        "_holds",
        "_idle_s",
        "_is_busy",
        "_loop",
        "_on_head",
        "_phase",
        "_timeouts",
        "_total_due",
        "_waiter",
        "address",
        "answer",
        "due",
        "error",
    )

    def __init__(self, answer: AnswerReader, timeouts: UpstreamTimeouts, address: str = "") -> None:
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._first_byte_s = timeouts.first_byte
        self._idle_s = timeouts.idle
        self.address = address
        self.answer = answer
        self.due = inf
        self._total_due = inf
        self._phase = ""
        self._holds = 0
        self._is_busy = False
        self.error: UpstreamError | None = None
        self._on_head: Callable[[], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = "busy" if self._is_busy else "idle"
        return f"<{type(self).__name__} {state if self.is_open else 'closed'}>"

    # What each version of HTTP does in its own way.

    @property
    def is_open(self) -> bool:
        """Return whether it can be written to, as far as is known."""
        raise NotImplementedError

    @property
    def is_used(self) -> bool:
        """Return whether an exchange has used the connection before."""
        raise NotImplementedError

    @property
    def is_reusable(self) -> bool:
        """Return whether another exchange may follow the one that is complete."""
        return False

    def _send(self, data: bytes, *, is_whole: bool) -> None:
        """Send the head of a request, as HTTP/1.1 has it, and as much of its body as there is.

        Raises:
            UpstreamError: it cannot be sent.
        """
        raise NotImplementedError

    async def write(self, data: bytes, *, is_chunked: bool) -> None:
        """Send a piece of the request's body, no faster than the upstream takes it.

        Args:
            data: the piece; not empty.
            is_chunked: whether the length of the body was not announced.

        Raises:
            UpstreamError: the connection is closed.
        """
        raise NotImplementedError

    async def finish_body(self, *, is_chunked: bool) -> None:
        """End the request's body; its answer is due from then on."""
        raise NotImplementedError

    def read_now(self) -> bytes:
        """Return the part of the body that has arrived and was not read yet; may be empty."""
        raise NotImplementedError

    def hold_back(self) -> None:
        """Pause reading the answer until `flow`: the client is slow to read it."""
        raise NotImplementedError

    def flow(self) -> None:
        """Resume after `hold_back`."""
        raise NotImplementedError

    def limit_reads(self, buffer: bytearray) -> None:
        """Read at most as much at a time as fits this buffer, until `release`."""
        raise NotImplementedError

    def release(self) -> None:
        """End the exchange."""
        raise NotImplementedError

    def switch(self, protocol: asyncio.Protocol) -> tuple[asyncio.Transport | None, bool]:
        """Hand the connection to another protocol, after a 101 answer.

        Returns:
            The transport, which is paused at first (None if it is closed already), and whether its
            buffer is full. Call `connection_lost` when it is lost.
        """
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the waiter for the answer, and the pool; called by what it was handed to."""
        raise NotImplementedError

    def _close(self) -> None:
        """Close immediately."""
        raise NotImplementedError

    # What is the same for all.

    def begin(
        self,
        data: bytes,
        *,
        is_head: bool,
        on_interim: Informational | None,
        is_whole: bool,
        may_switch: bool = False,
        deadline: float = 0.0,
        on_head: Callable[[], None] | None = None,
    ) -> None:
        """Send the head of a request, and as much of its body as has arrived.

        Args:
            data: what to send, as HTTP/1.1 has it.
            is_head: whether the method is HEAD.
            on_interim: called with the head of each interim answer.
            is_whole: whether `data` is the complete request; if not, the time limit of the answer's
                first byte starts with `sent`.
            may_switch: whether the request asks for a WebSocket, so that 101 may be the answer.
            deadline: the loop's time at which the client of a gRPC call stops waiting, which
                replaces the limit of the first byte; `inf` for never, 0 if it is not one.
            on_head: called once, when the head of the answer has arrived or is certain not to;
                replaces `await head()`.

        Raises:
            UpstreamError: it cannot be sent.
        """
        self.answer.start(is_head=is_head, on_interim=on_interim, may_switch=may_switch)
        self._is_busy = True
        timeouts = self._timeouts
        if timeouts.total != inf:
            self._total_due = self._loop.time() + timeouts.total
        if deadline:
            # Messages may be far between, as those of a WebSocket may.
            self._idle_s = timeouts.tunnel
            self._first_byte_s = timeouts.first_byte if deadline == inf else inf
            self._total_due = min(self._total_due, deadline)
        self._holds = 0
        if is_whole:
            self._await("first_byte", self._first_byte_s)
        else:
            self.hold_clock()
        self._send(data, is_whole=is_whole)
        self._on_head = on_head

    def sent(self) -> None:
        """Note that the rest of the request is sent: the time limit of its answer starts."""
        self.run_clock()
        if not self.answer.has_begun and not self._holds:
            self._await("first_byte", self._first_byte_s)

    def limit(self, first_byte_s: float | None, total_due: float) -> None:
        """Shorten the time limits of the exchange that has just begun.

        Args:
            first_byte_s: seconds until the first byte of its answer; None for no other limit.
            total_due: the loop's time at which it must be complete; `inf` for no other limit.
        """
        self._total_due = min(self._total_due, total_due)
        if self._holds:
            self.due = self._total_due
        else:
            own_s = self._first_byte_s
            self._await("first_byte", own_s if first_byte_s is None else min(own_s, first_byte_s))

    def _await(self, phase: str, seconds: float) -> None:
        self._phase = phase
        self.due = self._loop.time() + seconds
        if self._total_due < self.due:
            self._phase = "total"
            self.due = self._total_due

    def hold_clock(self) -> None:
        """Stop the clock until `run_clock` is called as often: the client causes the delay."""
        self._holds += 1
        self.due = self._total_due
        self._phase = "total"

    def run_clock(self) -> None:
        """Let the clock run: the upstream has to act."""
        self._holds -= 1
        if not self._holds and not self.answer.is_complete:
            self._await("idle", self._idle_s)

    def expire(self) -> None:
        """Close: the time limit is over."""
        self._fail(UpstreamTimeout(self._phase))

    async def head(self) -> None:
        """Wait until status and header fields are there.

        Raises:
            UpstreamError: they did not come.
        """
        while not self.answer.has_head:
            if self.error is not None:
                raise self.error
            await self._wait()

    async def read(self) -> bytes:
        """Return the next piece of the body, as soon as there is one; empty at its end.

        Raises:
            UpstreamError: the answer broke off.
        """
        answer = self.answer
        while not answer.body:
            if answer.is_complete:
                return b""
            if self.error is not None:
                raise self.error
            await self._wait()
        return self.read_now()

    def abort(self) -> None:
        """Close immediately; a waiter for the answer gets an error."""
        self._fail(UpstreamClosedError("given up"))

    @property
    def silence_s(self) -> tuple[float, float]:
        """Return the idle limits of a tunnel, as a whole and after a half-close, in seconds."""
        return self._timeouts.tunnel, self._timeouts.idle

    def forget(self) -> None:
        """Close immediately, without calling back."""
        self._on_head = None
        self.abort()

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._on_head is not None:
            on_head, self._on_head = self._on_head, None
            on_head()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: UpstreamError) -> None:
        if self.error is None:
            self.error = error
        self.due = inf
        self._stop_drain()
        self._close()
        self._wake()

    def _stop_drain(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(self.error or UpstreamClosedError("closed"))
        self._drained = None

    async def _drain(self) -> None:
        """Wait until the upstream takes more of the request's body."""
        self._await("idle", self._timeouts.idle)
        self._drained = self._loop.create_future()
        await self._drained
        self.due = self._total_due
        self._phase = "total"

    def _go_on(self) -> None:
        """End `_drain`."""
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
