"""The Throttr store keeps the contract of all stores, but for what no such server can."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import ClassVar

import pytest

from gateway.limits.rate import Limit
from gateway.stores.base import Store
from gateway.systems.throttr.store import ThrottrStore
from tests.processes import free_port
from tests.servers import until
from tests.stores.contract import WINDOW, StoreContract, ask, decide, remaining
from tests.throttr_server import ThrottrServer


class Contract(StoreContract):
    """Of fixed windows, and nothing else."""

    limits: ClassVar[tuple[Limit, ...]] = (WINDOW,)
    plain: ClassVar[Limit] = WINDOW
    has_queues: ClassVar[bool] = False
    size: ClassVar[int]

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThrottrServer]:
        """A server for all tests of a size."""
        running = ThrottrServer(tmp_path_factory.mktemp("throttr"), cls.size)
        running.start()
        yield running
        running.stop()

    @pytest.fixture
    async def store(self, server: ThrottrServer) -> AsyncIterator[ThrottrStore]:
        """A store in a domain of its own."""
        store = ThrottrStore(server.url, domain=f"t{free_port()}", deadline_us=5_000_000)
        await store.start()
        await until(lambda: store.is_ready)
        yield store
        await store.aclose()

    async def test_a_changed_limit_keeps_the_counts(self, store: Store) -> None:
        """What is left of a window is left; another count holds from the next window on."""
        assert (await decide(store, ask(self.plain, cost=4)))[0].allowed
        raised = replace(self.plain, count=10, burst=10)
        assert await remaining(store, raised) == 1
        lowered = replace(self.plain, count=2, burst=2)
        assert await remaining(store, lowered) == 1
        assert not (await decide(store, ask(lowered, cost=2)))[0].allowed


class TestThrottrOf32Bits(Contract):
    """Milliseconds for windows of a month."""

    size = 32


class TestThrottrOf8Bits(Contract):
    """The smallest numbers, and hours for a window of ten days."""

    size = 8
    limits = (replace(WINDOW, period_us=864_000_000_000),)
    plain = limits[0]
