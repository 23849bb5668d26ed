"""The records of a Throttr listener, as its connections see them.

A book receives requests and reports their answers: immediately for records in memory, and when
Redis has answered for records there. A connection passes one batch after the other, so its
requests are carried out in order in both cases.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, MutableSequence, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gateway.base.breaker import Breaker, BreakerState
from gateway.base.clock import US, Clock, monotonic_ns, monotonic_us
from gateway.base.errors import StoreError
from gateway.base.tasks import Tasks, becomes
from gateway.observe.metrics import FrontendMetrics
from gateway.stores.deadline import Deadline
from gateway.systems.throttr.codec import GET, NO, OPERATIONS, Request
from gateway.systems.throttr.records import Records

if TYPE_CHECKING:
    # Records in memory do not need the Redis client.
    from gateway.stores.redis.records import SharedRecords

log = logging.getLogger(__name__)

ROOM: Final = 256 * 1024
"""Bytes of buffers that one connection reads at a time."""
SWEEP_S: Final = 1.0
"""Seconds between two sweeps for expired records."""
SWEEP_LOOKS: Final = 1000
"""Entries checked in one sweep: about a millisecond."""
SOON_S: Final = 0.01
QUIET_US: Final = 10 * US
"""The least time between two log lines about requests that were refused without an answer."""
START_S: Final = 1.0
"""How long the start waits for Redis, so that the first requests are not refused."""
BATCH: Final = 256
"""About how many requests one call of the script has; other users of that Redis wait for it."""
GOT_BYTES: Final = 2 * 1024 * 1024
"""Bytes of buffers that one connection may wait for."""
ALL_GOT_BYTES: Final = 32 * 1024 * 1024
"""The same for all connections: a short request can ask for much, which Redis keeps until sent."""
FAILURES: Final = 3
"""Failed calls in a row after which the circuit breaker opens."""
OPEN_US: Final = US // 4
LONGEST_OPEN_US: Final = US
"""The longest time for which the breaker stays open."""

COUNTED: Final = tuple(
    # Malformed requests are counted elsewhere.
    (operation, answer) if code else None
    for code, operation in enumerate(OPERATIONS)
    for answer in ("no", "yes")
)
"""What the counts of requests are shown as: two for each operation, by its code."""

Answered = Callable[[Sequence[bytes]], None]
"""Receives the answers: to all requests, or to the first ones, as many as there was room for."""


class RecordStore(Protocol):
    """Carries out requests.

    Attributes:
        limit: how many requests one call may have.
    """

    limit: int

    async def start(self) -> None:
        """Start; call this in a running event loop."""

    async def aclose(self) -> None:
        """Release everything; no requests may follow."""

    def answer(self, requests: Sequence[Request], answered: Answered) -> None:
        """Carry out requests in order, and pass the answers on, now or later."""


class Memory(Protocol):
    """Carries out requests of one version on records in memory."""

    counts: MutableSequence[int]

    def answer(self, requests: Sequence[Request], now_ns: int, room: int) -> list[bytes]:
        """Carry out requests in order, and return their answers."""


class MemoryBook:
    """A `RecordStore` in this process.

    Args:
        memory: carries out requests.
        records: its records.
        metrics: counters of the listener.
        clock: nanoseconds that never run backwards.
    """

    limit = 1024
    """Takes a millisecond or two; then it is another connection's turn."""

    def __init__(
        self,
        memory: Memory,
        records: Records,
        metrics: FrontendMetrics,
        clock: Clock = monotonic_ns,
    ) -> None:
        self._memory = memory
        self._records = records
        self._metrics = metrics
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        memory.counts = metrics.tally(COUNTED)
        metrics.refresh = self._refresh_metrics

    def resize(self, max_records: int, max_bytes: int) -> None:
        """Have room for another number of records; those that are there stay until they expire."""
        self._records.max_records = max_records
        self._records.max_bytes = max_bytes

    async def start(self) -> None:
        """Start the regular sweeps for expired records."""
        self._sweep()

    async def aclose(self) -> None:
        """Stop the sweeps."""
        if self._timer is not None:
            self._timer.cancel()

    def answer(self, requests: Sequence[Request], answered: Answered) -> None:
        """Carry out requests, and pass the answers on immediately; see `RecordStore`."""
        answered(self._memory.answer(requests, self._clock(), ROOM))

    def _sweep(self) -> None:
        has_more = self._records.sweep(self._clock(), SWEEP_LOOKS)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SOON_S if has_more else SWEEP_S, self._sweep)

    def _refresh_metrics(self) -> None:
        self._metrics.records = self._records.count
        self._metrics.record_bytes = self._records.used_bytes


class _Submitted(NamedTuple):
    requests: Sequence[Request]
    gets: int
    answered: Answered


class SharedBook:
    """A `RecordStore` in Redis, which several gateways may share.

    All requests of one turn of the event loop are sent together. Requests that Redis does not
    answer in time are refused. After several failures in a row, all are refused, except for a batch
    now and then that checks whether Redis is back.

    Args:
        records: the records.
        refusal: returns the answer to a request that could not be carried out.
        name: of the listener, for the log.
        metrics: counters of the listener.
        deadline_us: how long one batch may take.
        longest: most bytes of a buffer.
        clock: this process's time.
    """

    limit = BATCH

    def __init__(
        self,
        records: SharedRecords,
        refusal: Callable[[Request], bytes],
        name: str,
        metrics: FrontendMetrics,
        *,
        deadline_us: int,
        longest: int,
        clock: Clock = monotonic_us,
    ) -> None:
        self._records = records
        self._most_gets = max(GOT_BYTES // longest, 1)
        self._gets_left = max(ALL_GOT_BYTES // longest, 1)
        self._held: deque[_Submitted] = deque()
        self._refusal = refusal
        self._name = name
        self._metrics = metrics
        self._deadline_s = deadline_us / US
        self._clock = clock
        self._breaker = Breaker(FAILURES, OPEN_US, LONGEST_OPEN_US)
        self._counts = metrics.tally(COUNTED)
        self._pending: list[_Submitted] = []
        self._tasks = Tasks()
        self._is_lost = False
        self._told_us = -QUIET_US

    async def start(self) -> None:
        """Connect, and wait a moment for that."""
        await self._records.start()
        await becomes(lambda: self._records.is_ready, START_S)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._tasks.finish(self._deadline_s)
        await self._records.aclose()

    def answer(self, requests: Sequence[Request], answered: Answered) -> None:
        """Send requests at the end of this turn of the loop; see `RecordStore`.

        Requests for buffers wait, in order, until there is room for them.
        """
        submitted = self._no_more_than_fit(requests, answered)
        if submitted.gets:
            self._held.append(submitted)
            self._let_go()
        else:
            self._submit(submitted)

    def _no_more_than_fit(self, requests: Sequence[Request], answered: Answered) -> _Submitted:
        """Return the first of these requests, as many as the bound on buffers admits."""
        gets = 0
        for place, request in enumerate(requests):
            if request[0] == GET:
                if gets == self._most_gets:
                    return _Submitted(requests[:place], gets, answered)
                gets += 1
        return _Submitted(requests, gets, answered)

    def _let_go(self) -> None:
        """Send requests that were held back, as far as there is room now."""
        while self._held and self._held[0].gets <= self._gets_left:
            submitted = self._held.popleft()
            self._gets_left -= submitted.gets
            self._submit(submitted)

    def _submit(self, submitted: _Submitted) -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._send)
        self._pending.append(submitted)

    def _send(self) -> None:
        pending, self._pending = self._pending, []
        batch: list[_Submitted] = []
        size = 0
        for submitted in pending:
            batch.append(submitted)
            size += len(submitted.requests)
            if size >= BATCH:
                self._tasks.start(self._ask(batch))
                batch, size = [], 0
        if batch:
            self._tasks.start(self._ask(batch))

    async def _ask(self, batch: Sequence[_Submitted]) -> None:
        requests = [request for submitted in batch for request in submitted.requests if request[0]]
        try:
            answers = iter(await self._ask_records(requests) if requests else ())
        finally:
            self._gets_left += sum(submitted.gets for submitted in batch)
            self._let_go()
        for submitted in batch:
            told = [
                self._read(request, next(answers)) if request[0] else NO
                for request in submitted.requests
            ]
            submitted.answered(told)

    async def _ask_records(self, requests: Sequence[Request]) -> Sequence[bytes | None]:
        """Return the answers; None for requests without one."""
        if not self._breaker.allow(self._clock()):
            return [None] * len(requests)
        try:
            with Deadline(asyncio.get_running_loop(), self._deadline_s):
                answers = await self._records.answer(requests)
        except StoreError as error:
            self._breaker.failure(self._clock())
            self._log_refused(error, len(requests))
            return [None] * len(requests)
        self._breaker.success(self._clock())
        if self._is_lost and self._breaker.state is BreakerState.CLOSED:
            self._is_lost = False
            log.warning("the records of %s are there again", self._name)
        return answers

    def _log_refused(self, error: StoreError, refused: int) -> None:
        """Log that clients were refused: to them it looks like a quota that is used up."""
        now_us = self._clock()
        is_lost = self._breaker.state is BreakerState.OPEN
        if is_lost and not self._is_lost:
            self._is_lost = True
            log.warning("the records of %s cannot be had (%s: %s)", self._name, error.reason, error)
        elif not is_lost and now_us - self._told_us >= QUIET_US:
            log.warning(
                "requests to %s were refused, %d of them, since records could not be had (%s: %s)",
                self._name,
                refused,
                error.reason,
                error,
            )
        else:
            return
        self._told_us = now_us

    def _read(self, request: Request, answer: bytes | None) -> bytes:
        if answer is None:
            self._metrics.answers[OPERATIONS[request[0]], "unavailable"] += 1
            return self._refusal(request)
        self._counts[2 * request[0] + answer[0]] += 1
        return answer
