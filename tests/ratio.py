"""ratio's service for the tests, as its clients call it, and what it promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.base.clock import ManualClock
from gateway.config.checking.check import check_text
from gateway.observe.metrics import FrontendMetrics, GatewayMetrics
from gateway.stores.base import Store
from gateway.stores.memory.store import MemoryStore
from gateway.stores.opening import find_store, open_store
from gateway.systems.ratio.listener import RatioFrontend, make
from gateway.wiring.limiter import decider_of
from tests.servers import until
from tests.systems.context import context_of

PATH: Final = "/RateLimitService/RateLimit"
OK: Final = b"\x08\x01"
OVER_LIMIT: Final = b"\x08\x02"


def read_files_first() -> None:
    """A gateway reads its files before its loop begins; a test that has begun must not."""
    check_text("listeners: [{ ratio: 1/m }]")
    find_store("redis://127.0.0.1")


def request(owner: str = "svc", resource: str = "/x") -> bytes:
    """A question, put together by hand: fields 1 and 2, both text."""
    message = b""
    for tag, text in ((b"\x0a", owner), (b"\x12", resource)):
        data = text.encode()
        assert len(data) < 128, "the length has one byte"
        message += tag + bytes((len(data),)) + data if data else b""
    return message


class Service:
    """A front end that runs in this process, and a client's channel to it.

    Attributes:
        frontend: the front end.
        metrics: all counters.
        channel: a channel to it.
        store: where it counts.
    """

    def __init__(
        self,
        frontend: RatioFrontend,
        metrics: GatewayMetrics,
        channel: grpc.aio.Channel,
        store: Store,
    ) -> None:
        self.frontend = frontend
        self.metrics = metrics
        self.channel = channel
        self.store = store
        self.method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)

    @property
    def counters(self) -> FrontendMetrics:
        """Those of the listener."""
        return self.metrics.frontend("ratio")

    async def ask(self, owner: str = "svc", resource: str = "/x") -> bytes:
        """Ask, and return the bytes of the answer.

        Raises:
            grpc.aio.AioRpcError: it was no answer.
        """
        return await self.method(request(owner, resource))

    async def passes(self, owner: str = "svc", resource: str = "/x") -> bool:
        """Whether a question is answered OK, and not OVER_LIMIT."""
        answer = await self.ask(owner, resource)
        assert answer in (OK, OVER_LIMIT)
        return answer == OK

    async def health(self) -> int:
        """What health checks are told: 1 for serving, 2 for not."""
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service="RateLimitService"))
        return int(answer.status)


@asynccontextmanager
async def serving(
    ratio: str, where: ManualClock | str | Store | None = None, more: str = ""
) -> AsyncIterator[Service]:
    """A listener for ratio's clients.

    Args:
        ratio: its part of the configuration, in one line of YAML.
        where: the clock of a memory, the URL of a store, or a store; a clock that stands still
            if left out.
        more: further lines of the configuration.
    """
    text = f"listeners:\n  - ratio: {ratio}\n    bind: 127.0.0.1:0\n{more}\n"
    config = check_text(text).config
    metrics = GatewayMetrics()
    store: Store
    if where is None or isinstance(where, ManualClock):
        clock = where or ManualClock(10**15)
        store = MemoryStore(clock=clock, calendar_clock=clock)
    elif isinstance(where, str):
        store = open_store(where, domain="test", deadline_us=config.store.deadline)
    else:
        store = where
    decider = decider_of(config, store, metrics.store("main"))
    await decider.start()
    await until(lambda: decider.is_ready)
    ground = context_of(config, decider, store, metrics)
    frontend = make("ratio", config.listeners[0], ground)
    await frontend.start()
    try:
        async with grpc.aio.insecure_channel(str(frontend.address)) as channel:
            yield Service(frontend, metrics, channel, store)
    finally:
        await frontend.drain(1)
        await decider.aclose()


class Model:
    """The algorithm as ratio's papers tell it, with hits of one moment kept apart.

    Args:
        quantity: hits that there may be in a window.
        window_us: how long that is.
        clock: its time.
        counts_refused: whether refused hits are kept, as ratio does.
    """

    def __init__(
        self,
        quantity: int,
        window_us: int,
        clock: Callable[[], int],
        *,
        counts_refused: bool = True,
    ) -> None:
        self._quantity = quantity
        self._window_us = window_us
        self._clock = clock
        self._counts_refused = counts_refused
        self._hits: defaultdict[tuple[str, str], list[int]] = defaultdict(list)

    def passes(self, owner: str, resource: str) -> bool:
        """Remove what is older than a window, count, and add this hit."""
        now_us = self._clock()
        hits = self._hits[owner, resource]
        hits[:] = [hit for hit in hits if hit >= now_us - self._window_us]
        is_allowed = len(hits) < self._quantity
        if is_allowed or self._counts_refused:
            hits.append(now_us)
        return is_allowed
