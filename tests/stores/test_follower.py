"""A store that others do without: what it misses costs them nothing, and does not go unseen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from gateway.base.errors import StoreUnavailable
from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask, Store
from gateway.stores.follower import CALM_US, Follower
from gateway.stores.scripted import Fail, ScriptedDelay, ScriptedStore
from gateway.stores.shards import FAILURES
from tests.stores.around import AroundMemory
from tests.virtual_time import clock, run

US = 1_000_000
PATIENCE_US = 10_000
LIMIT = Limit(1000, 3600 * US, 1000, scope="api/ip")
DOWN = Fail(StoreUnavailable("refused"))
NEVER = ScriptedDelay(1e9)


def _ask(key: str = "k", cost: int = 1) -> Ask:
    return Ask((LIMIT,), (key,), cost, 0)


def _follower(store: Store, metrics: StoreMetrics) -> Follower:
    return Follower(store, metrics, timeout_us=PATIENCE_US, clock=clock())


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_frozen_store_is_left_alone_and_looked_for() -> None:
    """After some failures no call waits for it; a probe that spends nothing finds it again."""

    async def work() -> None:
        store, metrics = ScriptedStore(clock()), StoreMetrics()
        follower = _follower(store, metrics)
        store.then(*[NEVER] * (FAILURES + 2))
        for _ in range(FAILURES):
            begun_us = clock()()
            assert await follower.decide([_ask()]) == [None]
            assert clock()() - begun_us == PATIENCE_US
        assert not follower.is_ready
        begun_us = clock()()
        for _ in range(50):
            assert await follower.decide([_ask(), _ask()]) == [None, None]
        assert clock()() == begun_us
        assert len(store.asked) == FAILURES
        metrics.refresh()
        assert (metrics.breaker, metrics.is_ready, metrics.missed) == ("open", False, 103)
        await asyncio.sleep(5)
        assert [[ask.cost for ask in batch] for batch in store.asked[FAILURES:]] == [[0]] * 3
        (verdict,) = await follower.decide([_ask()])
        assert verdict is not None
        assert verdict.decisions[0].remaining == 999
        metrics.refresh()
        assert (metrics.breaker, metrics.is_ready, metrics.missed) == ("closed", True, 103)
        assert (metrics.decisions, metrics.batches) == (1, 1)
        assert dict(metrics.errors) == {"timeout": FAILURES + 2, "breaker_open": 100}
        await follower.aclose()
        assert store.is_closed

    run(work())


def test_a_spell_of_misses_is_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    """One when it goes, one when it is back for good and with how much it has missed.

    A store that is only too slow answers every other call, and is no reason for more lines.
    """

    async def work() -> None:
        store, metrics = ScriptedStore(clock()), StoreMetrics()
        follower = _follower(store, metrics)
        for _ in range(200):
            store.then(ScriptedDelay(0.02), ScriptedDelay(0.001))
        for _ in range(400):
            await follower.decide([_ask(), _ask("other"), _ask(cost=0)])
            await asyncio.sleep(0.05)
        assert metrics.missed == 400, "who only looks would have left no count"
        (line,) = _lines(caplog)
        assert line == (
            "the new store is unavailable (timeout: no answer within the deadline)"
            "; the old store decides"
        )
        await asyncio.sleep(CALM_US / US)
        _, line = _lines(caplog)
        assert line == (
            "the new store is available again: it missed 400 decisions in 22.1 s, and none in the "
            "10 s since"
        )
        store.then(DOWN)
        await follower.decide([_ask()])
        assert len(_lines(caplog)) == 3
        await follower.aclose()

    run(work())


def test_a_spell_lasts_until_the_store_answers(caplog: pytest.LogCaptureFixture) -> None:
    """Without requests, it is not reported as available before it is."""

    async def work() -> None:
        store, metrics = ScriptedStore(clock()), StoreMetrics()
        follower = _follower(store, metrics)
        store.then(*[DOWN] * 60)
        for _ in range(FAILURES):
            await follower.decide([_ask()])
        await asyncio.sleep(40)
        assert len(_lines(caplog)) == 1
        await asyncio.sleep(40)
        assert len(_lines(caplog)) == 2
        await follower.aclose()

    run(work())


def test_a_lost_shard_is_missed_alone() -> None:
    """Its breaker opens for its keys; those of other servers go on being decided."""

    class Sharded(AroundMemory):
        def shard(self, ask: Ask) -> str:
            return ask.keys[0]

        async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
            assert len({ask.keys for ask in asks}) == 1
            if asks[0].keys[0] == "lost":
                raise StoreUnavailable("refused")
            return await super().decide(asks)

    async def work() -> None:
        metrics = StoreMetrics()
        follower = _follower(Sharded(clock=clock()), metrics)
        for number in range(1, 10):
            one, lost, other = await follower.decide([_ask("one"), _ask("lost"), _ask("other")])
            assert lost is None
            for verdict in (one, other):
                assert verdict is not None
                assert verdict.decisions[0].remaining == 1000 - number
        assert metrics.errors["unavailable"] == FAILURES
        metrics.refresh()
        assert (metrics.breaker, metrics.is_ready) == ("open", True)
        await follower.aclose()

    run(work())


def test_what_it_cannot_renew_or_take_back_is_counted() -> None:
    """Failing or silent, within its patience, without an exception."""

    async def work() -> None:
        store, metrics = ScriptedStore(clock()), StoreMetrics()
        follower = _follower(store, metrics)
        (verdict,) = await follower.decide([_ask()])
        assert verdict is not None
        store.then_give_back(DOWN, NEVER)
        store.then_renew(DOWN, NEVER)
        begun_us = clock()()
        for _ in range(2):
            await follower.give_back(_ask(), verdict)
            await follower.renew(_ask(), verdict)
        assert clock()() - begun_us == 2 * PATIENCE_US
        assert dict(metrics.errors) == {"give_back": 2, "unavailable": 1, "timeout": 1}
        await follower.aclose()

    run(work())


def test_who_asks_goes_on_in_time_whatever_the_store_or_the_loop_does() -> None:
    """A store that is slow to let go, or a loop that was late, may take half as long again."""

    class Clinging(AroundMemory):
        async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
            try:
                await asyncio.sleep(1e9)
            finally:
                await asyncio.sleep(1)
            return await super().decide(asks)

    async def work() -> None:
        for stall_us in (0, 7 * PATIENCE_US // 10):
            metrics = StoreMetrics()
            follower = _follower(Clinging(clock=clock()), metrics)
            begun_us = clock()()
            asking = asyncio.create_task(follower.decide([_ask()]))
            await asyncio.sleep(0.009)
            clock().advance(us=stall_us)
            assert await asking == [None]
            assert clock()() - begun_us == max(1.5 * PATIENCE_US, 9000 + stall_us)
            assert dict(metrics.errors) == {"timeout": 1}
            await asyncio.sleep(2)
            await follower.aclose()

    run(work())
