"""The memory store that the workers of one gateway share: a worker's end.

The counts are in the limiter (`server`), a process of the same gateway. Each batch is sent as one
frame (`frames`), and any number of batches may be in flight. The connection is a pair of sockets
made by the supervisor, which no other process can connect to. When the limiter is restarted there
is a new pair, and until then calls fail immediately.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from socket import socket
from typing import Final, cast

from gateway.base.clock import Clock, monotonic_us
from gateway.base.errors import StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.limits import ALGORITHMS
from gateway.limits.decision import Verdict
from gateway.stores.base import Ask
from gateway.stores.shared.frames import (
    FORGET,
    GIVE_BACK,
    LATE,
    RENEW,
    RENEWED,
    VERDICTS,
    Limits,
    Splitter,
    decode_verdicts,
    encode_asks,
    encode_plan,
    encode_undo,
    frame,
)

MAX_CALLS: Final = 2048
"""Unanswered calls; more would only accumulate in memory and be answered too late."""
MAX_UNSENT: Final = 8 << 20
"""Bytes that may wait for a limiter that does not read."""
STALLED_US: Final = 1_000_000
"""When the oldest answer is overdue by this much, the limiter counts as stalled."""
MAX_PLANS_KEPT: Final = 1 << 14
"""Plans that both ends keep. Limits change while a gateway runs, so beyond this number all are
forgotten, and those still in use are sent again.
"""
MAX_SEEN: Final = 4096
"""Plans that are found by object; any others are encoded anew for each request, and looked up."""


class SharedStore:
    """A `Store` in another process of this gateway.

    Args:
        workers: how many share it.
        deadline_us: how long callers wait for a batch. One that the limiter reads later spends
            nothing. 0 lets it be spent however late.
        clock: the time of this machine, which is the limiter's too.
    """

    def __init__(self, workers: int, deadline_us: int, clock: Clock = monotonic_us) -> None:
        self.counts_debits = True
        self._workers = workers
        self._deadline_us = deadline_us
        self._clock = clock
        self._link: _FrameConnection | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<SharedStore of {self._workers} workers, {self._link!r}>"

    @property
    def is_ready(self) -> bool:
        """Whether an ask would probably be answered now."""
        link = self._link
        return link is not None and link.is_open and link.oldest_us < STALLED_US

    @property
    def gateways(self) -> int:
        """How many workers share the counts."""
        return self._workers

    async def start(self) -> None:
        """Do nothing: connections are passed to `attach`."""

    async def attach(self, connection: socket) -> None:
        """Use this connection from now on; it belongs to the store."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(
            lambda: _FrameConnection(self._clock), sock=connection
        )
        if self._is_closed:
            link.drop()
            return
        before, self._link = self._link, link
        if before is not None:
            before.drop()

    def reconfigure(self, deadline_us: int) -> None:
        """Serve another configuration: its limits are others, and its callers wait this long."""
        self._deadline_us = deadline_us
        if self._link is not None:
            self._link.forget_plans()

    async def aclose(self) -> None:
        """Do nothing: a later configuration of this worker may count here again; see `close`."""

    def close(self) -> None:
        """Close the connection at the worker's end; what it holds is released."""
        self._is_closed = True
        link, self._link = self._link, None
        if link is not None:
            link.close()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Decide on a batch, in one call.

        Raises:
            StoreUnavailable: not connected, or too much is unanswered; immediately.
            StoreTimeout: the limiter read the batch too late and spent nothing.
            StoreReplyError: the answer cannot be understood.
        """
        if not asks:
            return ()
        link = self._open()
        not_after_us = self._clock() + self._deadline_us if self._deadline_us else 0
        reply = await link.ask(link.encode(asks, not_after_us))
        if reply[0] == LATE:
            raise StoreTimeout("the limiter got to the question too late", "late")
        try:
            if reply[0] == VERDICTS:
                return decode_verdicts(reply[1:], asks)
        except Exception as error:
            raise StoreReplyError(f"the limiter's answer cannot be read: {error}") from error
        raise StoreReplyError("the limiter answered something else")

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """Undo `verdict`; without a connection this worker holds nothing any more."""
        link = self._link
        if verdict.allowed and ask.cost and link is not None and link.has_room:
            link.tell(link.encode_undo(GIVE_BACK, ask, verdict))

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """Keep what an allowed ask holds for another lease; see `Store.renew`."""
        if not verdict.allowed:
            return False
        if all(ALGORITHMS[limit.algorithm].renew is None for limit in ask.limits):
            return True
        link = self._open()
        reply = await link.ask(link.encode_undo(RENEW, ask, verdict))
        if reply[0] != RENEWED:
            raise StoreReplyError("the limiter answered something else")
        return reply[1:] == b"\1"

    def _open(self) -> _FrameConnection:
        link = self._link
        if link is None or not link.is_open:
            raise StoreUnavailable("the limiter is not connected", "not_connected")
        return link


class _FrameConnection(asyncio.Protocol):
    """One connection: frames out, answers in, matched in order.

    A caller that gives up leaves its place in the queue, so its answer is read and discarded and
    can never be taken for another's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._splitter = Splitter()
        self._calls: deque[tuple[asyncio.Future[bytes], int]] = deque()
        self._transport: asyncio.Transport | None = None
        self._numbers: dict[Limits, int] = {}
        self._seen: dict[int, tuple[Limits, int]] = {}

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"{state}, {len(self._calls)} calls, {len(self._numbers)} plans"

    @property
    def is_open(self) -> bool:
        """Whether calls can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def oldest_us(self) -> int:
        """The age of the oldest unanswered call."""
        return self._clock() - self._calls[0][1] if self._calls else 0

    @property
    def has_room(self) -> bool:
        """Whether something can be sent without accumulating."""
        transport = self._transport
        return transport is not None and transport.get_write_buffer_size() <= MAX_UNSENT

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the limiter's connection."""
        # A cast, not an assertion: uvloop's transports only behave like one.
        self._transport = cast("asyncio.Transport", transport)

    def number_of(self, limits: Limits) -> int:
        """Return the number of the plan of these limits; send a new plan first."""
        # Nearly all asks bring the very tuple of their route, which is found without hashing
        # limits; that would take as long as all the rest of an ask.
        seen = self._seen.get(id(limits))
        if seen is not None:
            return seen[1]
        number = self._numbers.get(limits)
        if number is None:
            self.tell(encode_plan(limits))
            number = self._numbers[limits] = len(self._numbers)
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        # Kept with the limits, or another tuple could get the same id.
        self._seen[id(limits)] = (limits, number)
        return number

    def forget_plans(self) -> None:
        """Forget all plans, at both ends; call this between frames."""
        self.tell(frame(FORGET))
        self._numbers.clear()
        self._seen.clear()

    def encode(self, asks: Sequence[Ask], not_after_us: int) -> bytes:
        """Return the frame of a batch.

        Raises:
            StoreUnavailable: it is longer than the limiter reads.
        """
        self._bound_plans()
        try:
            return encode_asks(asks, self.number_of, not_after_us)
        except ValueError as error:
            raise StoreUnavailable(str(error), "backlog") from error

    def encode_undo(self, kind: int, ask: Ask, verdict: Verdict) -> bytes:
        """Return the frame of `GIVE_BACK` or `RENEW`."""
        self._bound_plans()
        return encode_undo(kind, ask, verdict, self.number_of)

    def _bound_plans(self) -> None:
        if len(self._numbers) >= MAX_PLANS_KEPT:
            self.forget_plans()

    def tell(self, sent: bytes) -> None:
        """Send a frame that is not answered."""
        if self._transport is not None:
            self._transport.write(sent)

    async def ask(self, sent: bytes) -> bytes:
        """Send a frame and wait for its answer.

        Raises:
            StoreUnavailable: too much is unanswered, or the connection is lost.
        """
        transport = self._transport
        if transport is None or len(self._calls) >= MAX_CALLS:
            raise StoreUnavailable("too many calls are unanswered", "backlog")
        if not self.has_room:
            raise StoreUnavailable("the limiter does not read", "backlog")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls.append((future, self._clock()))
        transport.write(sent)
        return await future

    def data_received(self, data: bytes) -> None:
        """Match answers to calls."""
        calls = self._calls
        try:
            for reply in self._splitter.feed(data):
                future = calls.popleft()[0]
                # Done already: its caller gave up, and this answer is dropped.
                if not future.done():
                    future.set_result(reply)
        except (ValueError, IndexError):
            self.drop()

    def close(self) -> None:
        """Close when everything has been sent."""
        if self._transport is not None:
            self._transport.close()

    def drop(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is unanswered, whose outcome is not known."""
        self._transport = None
        while self._calls:
            future = self._calls.popleft()[0]
            if not future.done():
                error = StoreUnavailable("the connection to the limiter was lost")
                future.set_exception(error)
