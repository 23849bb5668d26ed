"""Envoy's rate limit service for the tests: without a socket, and as its clients call it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final

import grpc.aio

from gateway.base.clock import ManualClock
from gateway.config.checking.check import check_text
from gateway.config.models.gateway import GatewayConfig
from gateway.limiter.decider import Decider
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.base import Store
from gateway.stores.memory.store import MemoryStore
from gateway.systems.envoy.asking import EnvoyQuestions
from gateway.systems.envoy.messages import (
    METHOD,
    SERVICE,
    Descriptor,
    EnvoyQuestion,
    Reply,
    read_reply,
    write_question,
)
from gateway.systems.envoy.plan import Planner
from gateway.systems.envoy.replies import Replies
from gateway.systems.envoy.rules import Domains
from gateway.wiring.limiter import decider_of
from tests.servers import until
from tests.systems.context import context_of

PATH: Final = f"/{SERVICE}/{METHOD}"

Asked = Descriptor | Mapping[str, str]
"""A descriptor, or the keys and values of one that has nothing else."""


def question(*descriptors: Asked, domain: str = "shop", hits: int = 0) -> EnvoyQuestion:
    """What Envoy would ask."""
    return EnvoyQuestion(
        domain,
        [
            one if isinstance(one, Descriptor) else Descriptor(tuple(one.items()))
            for one in descriptors
        ],
        hits,
    )


def config_of(rules: str, options: str = "", more: str = "") -> GatewayConfig:
    """A configuration with the rules of the domain `shop`, one to a line.

    Args:
        rules: lines such as `{ match: { k: v }, limit: 1/s }`.
        options: lines of the listener's own part.
        more: further lines of the configuration.
    """
    lines = [f"          - {line.strip()}" for line in rules.strip().splitlines()]
    own = [f"      {line.strip()}" for line in options.strip().splitlines()]
    text = ["listeners:", "  - envoy_rls:", *own, "      domains:", "        shop:", *lines]
    whole = "\n".join([*text, "    bind: 127.0.0.1:0", more])
    # No gateway reads its configuration inside the event loop, which some tests are in.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(check_text, whole).result().config


class Service:
    """The service without its socket.

    Attributes:
        metrics: all counters.
    """

    def __init__(
        self, config: GatewayConfig, decider: Decider, store: Store, metrics: GatewayMetrics
    ) -> None:
        self.metrics = metrics
        own = config.listeners[0].envoy_rls
        assert own is not None
        ground = context_of(config, decider, store, metrics)
        self._decider = decider
        self._planner = Planner(Domains(own, ground))
        self._asking = EnvoyQuestions(decider)
        self._replies = Replies(own)

    async def ask(self, *descriptors: Asked, hits: int = 0, domain: str = "shop") -> Reply:
        """Ask, and return the answer, once all that was spent in vain before is given back."""
        await until(lambda: not self._decider._returns._running)
        asked = question(*descriptors, domain=domain, hits=hits)
        return self._replies.reply(await self._asking.ask(self._planner.plan(asked)))


@asynccontextmanager
async def serving(
    config: GatewayConfig, where: ManualClock | Callable[[], Store]
) -> AsyncIterator[Service]:
    """The service on a store that is made here, or in memory by a clock of the test's own."""
    metrics = GatewayMetrics()
    if isinstance(where, ManualClock):
        store: Store = MemoryStore(clock=where, calendar_clock=where)
    else:
        store = where()
    decider = decider_of(config, store, metrics.store("main"))
    await decider.start()
    await until(lambda: decider.is_ready)
    try:
        yield Service(config, decider, store, metrics)
    finally:
        await decider.aclose()


def still_clock() -> ManualClock:
    """A clock that a test moves."""
    return ManualClock(1_000_000_000_000)


async def call(channel: grpc.aio.Channel, *descriptors: Asked, hits: int = 0) -> Reply:
    """Ask as Envoy does.

    Raises:
        grpc.aio.AioRpcError: it was no answer.
    """
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
    return read_reply(await method(write_question(question(*descriptors, hits=hits))))


def codes(reply: Reply) -> tuple[int, Sequence[int]]:
    """The code of a reply, and those of its descriptors."""
    return reply.code, [status.code for status in reply.statuses]
