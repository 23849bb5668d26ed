"""One connection to a Throttr server: requests are sent as they come, answers matched in order.

A caller that gives up keeps its place in the queue, so its answer is read, discarded, and never
mistaken for another's. An answer does not state its length, which follows from its request. So a
single unexpected byte ends the connection.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.base.clock import Clock, monotonic_us
from gateway.base.errors import StoreError, StoreReplyError, StoreUnavailable
from gateway.stores.pipelining import Pipelining
from gateway.systems.throttr.codec_v5 import (
    OK,
    REFUSED,
    Answer,
    AnswerStream,
    Counter,
    ThrottrRequest,
    Ttl,
    insert,
    purge,
    query,
)
from gateway.systems.throttr.store_url import ThrottrAddress

CONNECT_TIMEOUT_S: Final = 2.0
MAX_UNANSWERED: Final = 32_768
"""The most requests without an answer; more would only use memory and be too late."""
MAX_UNSENT: Final = 8 << 20
"""The most bytes that may wait for a server that does not read."""

_HELLO_QUOTA: Final = 90
_HELLO_TTL: Final = Ttl(4, 5)


class _SentRequests:
    """Requests that were sent together."""

    __slots__ = ("answers", "future", "is_query", "since_us")

    def __init__(
        self, is_query: Sequence[bool], future: asyncio.Future[list[Answer]], since_us: int
    ) -> None:
        self.is_query = is_query
        self.future = future
        self.since_us = since_us
        self.answers: list[Answer] = []


class ThrottrPipe(Pipelining):
    """Sends requests, and matches answers to them in order.

    Args:
        size: bits of a number.
        clock: for the age of unanswered calls.

    Attributes:
        size: bits of a number.
        lost: done when the connection has ended.
    """

    def __init__(self, size: int, clock: Clock) -> None:
        super().__init__()
        self.size = size
        self._clock = clock
        self._reader = AnswerStream(size)
        self._calls: deque[_SentRequests] = deque()
        self._unanswered = 0

    @property
    def oldest_us(self) -> int:
        """How long the oldest call has waited for its answers."""
        return self._clock() - self._calls[0].since_us if self._calls else 0

    def call(self, requests: Sequence[ThrottrRequest]) -> asyncio.Future[list[Answer]]:
        """Send requests, at least one, in one write; the future gets their answers in order.

        Raises:
            StoreUnavailable: too many requests are unanswered, or the connection is lost.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise StoreUnavailable("the connection to the store was lost")
        is_full = self._unanswered + len(requests) > MAX_UNANSWERED and self._unanswered
        if is_full or transport.get_write_buffer_size() > MAX_UNSENT:
            raise StoreUnavailable("too many calls are unanswered", "backlog")
        future: asyncio.Future[list[Answer]] = self.lost.get_loop().create_future()
        self._calls.append(
            _SentRequests([each.is_query for each in requests], future, self._clock())
        )
        self._unanswered += len(requests)
        transport.write(b"".join([each.data for each in requests]))
        return future

    def data_received(self, data: bytes) -> None:
        """Match answers to requests."""
        reader = self._reader
        reader.feed(data)
        try:
            while self._calls and reader.read(self._calls[0].is_query, self._calls[0].answers):
                call = self._calls.popleft()
                self._unanswered -= len(call.answers)
                # Done already: its caller gave up, and these answers are dropped.
                if not call.future.done():
                    call.future.set_result(call.answers)
        except ValueError as error:
            self.drop(StoreReplyError(f"the store does not speak the protocol of Throttr: {error}"))
            return
        if reader and not self._calls:
            self.drop(StoreReplyError("the store sent an answer without a request"))

    def _take_unanswered(self) -> Iterator[asyncio.Future[list[Answer]]]:
        self._unanswered = 0
        while self._calls:
            yield self._calls.popleft().future


async def open_pipe(address: ThrottrAddress, *, clock: Clock = monotonic_us) -> ThrottrPipe:
    """Connect, and check that a Throttr server of that size answers.

    Raises:
        StoreUnavailable: connecting failed, or the server is not usable.
    """
    loop = asyncio.get_running_loop()
    pipe = ThrottrPipe(address.size, clock)
    is_connected = False
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await loop.create_connection(lambda: pipe, address.host, address.port)
            is_connected = True
            await _greet(pipe)
    except (TimeoutError, StoreError) as error:
        pipe.close()
        if is_connected:
            raise _not_throttr_error(address) from error
        raise StoreUnavailable(f"{address} does not answer", "connect") from error
    except OSError as error:
        pipe.close()
        message = f"{address} cannot be reached: {error.strerror or type(error).__name__}"
        raise StoreUnavailable(message, "connect") from error
    except BaseException:
        pipe.close()
        raise
    return pipe


async def _greet(pipe: ThrottrPipe) -> None:
    """Create a counter and query it: the protocol states neither version nor size.

    The counter is purged only after the query is answered: the server reads its fields when it
    writes the answer, and after a purge in the same read it would send whatever is in that memory
    by then.

    Raises:
        StoreError: the answer is not the expected one.
    """
    size, key = pipe.size, b"hello\0" + secrets.token_bytes(8)
    none, inserted, counter = await pipe.call(
        [
            ThrottrRequest(query(key), is_query=True),
            ThrottrRequest(insert(size, _HELLO_QUOTA, _HELLO_TTL, key)),
            ThrottrRequest(query(key), is_query=True),
        ]
    )
    is_right = (none, inserted) == (REFUSED, OK)
    if not (is_right and isinstance(counter, Counter) and _is_hello(counter)):
        raise StoreReplyError("the counter is not as it was made")
    (purged,) = await pipe.call([ThrottrRequest(purge(key))])
    if purged != OK:
        raise StoreReplyError("the counter could not be purged")


def _is_hello(counter: Counter) -> bool:
    unit, value = counter.ttl
    return counter.quota == _HELLO_QUOTA and unit == _HELLO_TTL.unit and value <= _HELLO_TTL.value


def _not_throttr_error(address: ThrottrAddress) -> StoreUnavailable:
    message = f"{address.host}:{address.port} does not answer as Throttr 5 with numbers of"
    return StoreUnavailable(f"{message} {address.size} bits does", "handshake")
