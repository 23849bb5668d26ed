"""Moving between stores: at every moment one of them sees all requests of a key."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.clock import Clock, monotonic_us
from gateway.base.errors import StoreTimeout, StoreUnavailable
from gateway.limiter.decider import Decider
from gateway.limiter.lease_keeper import HeldLease, leases_of
from gateway.limiter.outcome import Outcome
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask, ShardedStore, Store
from gateway.stores.deadline import Deadline
from gateway.stores.memory.store import MemoryStore
from gateway.stores.migrating import IsMoving, MovingStore, chosen, moving_store
from gateway.stores.redis.store import RedisStore
from gateway.stores.scripted import (
    Fail,
    ScriptedAnswer,
    ScriptedDelay,
    ScriptedHold,
    ScriptedStore,
    Step,
)
from tests.limiter.test_decider import rule
from tests.servers import RedisServer, until
from tests.stores.around import AroundMemory
from tests.stores.contract import StoreContract
from tests.virtual_time import clock, run

HOUR_US = 3_600_000_000
LIMIT = Limit(20, HOUR_US, 20, "sliding_window_log", scope="api/ip")
ALL = chosen(PARTS_PER_WHOLE)
SLOT = Limit(1, 1_000_000, 1, "concurrency", scope="api/ip")
HALF = chosen(PARTS_PER_WHOLE // 2)
DEADLINE_US = 2_000_000
KEYS = [f"client-{number}" for number in range(12)]


def _ask(key: str = "k", cost: int = 1, limit: Limit = LIMIT) -> Ask:
    return Ask((limit,), (key,), cost, 0)


def _moving(
    old: Store,
    new: Store,
    is_moving: IsMoving = ALL,
    *,
    deadline_us: int = DEADLINE_US,
    clock: Clock = monotonic_us,
) -> MovingStore:
    return moving_store(
        old, new, is_moving, deadline_us=deadline_us, metrics=StoreMetrics(), clock=clock
    )


def _left(store: MemoryStore, limit: Limit = LIMIT) -> int:
    return store.decide_now(_ask(cost=0, limit=limit)).decisions[0].remaining


class TestMovingFromMemoryToMemory(StoreContract):
    """A store that is moving keeps the contract of all stores."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[MovingStore]:
        """All keys move."""
        store = _moving(MemoryStore(), MemoryStore())
        await store.start()
        yield store
        await store.aclose()


class TestMovingFromMemoryToRedis(StoreContract):
    """Likewise where the new store is somewhere else, and half of the keys move."""

    @pytest.fixture
    async def store(self, redis_server: RedisServer) -> AsyncIterator[MovingStore]:
        """From this process to a real server."""
        new = RedisStore(redis_server.url, domain="moving", deadline_us=DEADLINE_US)

        def is_moving(limit: Limit, key: str) -> bool:
            # What refuses where others pass: a bucket takes back a little less than it gave.
            return HALF(limit, key) or limit.scope == "contract/narrow"

        store = _moving(MemoryStore(), new, is_moving)
        await store.start()
        await until(lambda: new.is_ready)
        yield store
        await store.aclose()


async def _hammer(stores: list[Store], passed: Counter[str]) -> None:
    """Ask for each key at each gateway's store, more often than the limit allows."""

    async def one(store: Store, key: str) -> None:
        for _ in range(4):
            (verdict,) = await store.decide([_ask(key)])
            passed[key] += verdict.allowed

    await asyncio.gather(*(one(store, key) for store in stores for key in KEYS))


async def test_a_key_is_held_to_a_limit_at_every_moment(redis_server: RedisServer) -> None:
    """Two gateways move from one Redis to another, one after the other, in shares of keys.

    While one of them asks the old store alone, the old one sees every request; from when both
    move all keys, the new one does. So over either span no key gets more than its limit.
    """
    url = redis_server.url.removesuffix("/0")
    async with contextlib.AsyncExitStack() as stack:

        async def opened(database: int) -> RedisStore:
            store = RedisStore(f"{url}/{database}", domain="moving", deadline_us=DEADLINE_US)
            await store.start()
            stack.push_async_callback(store.aclose)
            await until(lambda: store.is_ready)
            return store

        old, new = await opened(0), await opened(1)
        half = _moving(old, new, HALF)
        both = _moving(old, new)
        by_old: Counter[str] = Counter()
        by_new: Counter[str] = Counter()
        before: list[list[Store]] = [[old, old], [old, half], [half, half], [half, both]]
        for gateways in before:
            await _hammer(gateways, by_old)
        await _hammer([both, both], by_new)
        assert {by_old[key] + by_new[key] for key in KEYS} == {20}
        after: list[list[Store]] = [[both, new], [new, new], [new, new], [new, new]]
        for gateways in after:
            await _hammer(gateways, by_new)
        assert max(by_new.values()) <= 20
        moved = [key for key in KEYS if HALF(LIMIT, key)]
        assert 0 < len(moved) < len(KEYS)
        assert all(by_new[key] < 20 for key in moved), "what was counted before has moved along"


async def test_what_one_store_refuses_is_given_back_in_the_other() -> None:
    """A refusal takes nothing, whichever store it comes from."""
    for full, free in ((0, 1), (1, 0)):
        stores = [MemoryStore(), MemoryStore()]
        stores[full].decide_now(_ask(cost=20))
        moving = _moving(stores[0], stores[1])
        (verdict,) = await moving.decide([_ask()])
        assert not verdict.allowed
        assert verdict.retry_after_us > 0
        assert _left(stores[free]) == 20
        await moving.aclose()


class _Freezing(AroundMemory):
    """Answers nothing and counts nothing while it is frozen, as it is at first."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self._thawed = asyncio.Event()

    def freeze(self) -> None:
        """Calls under way and later ones wait."""
        self._thawed.clear()

    def thaw(self) -> None:
        """Go on."""
        self._thawed.set()

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """When it is thawed."""
        await self._thawed.wait()
        return await super().decide(asks)

    async def give_back(self, ask: Ask, verdict: Verdict) -> None:
        """When it is thawed."""
        await self._thawed.wait()
        await super().give_back(ask, verdict)

    async def renew(self, ask: Ask, verdict: Verdict) -> bool:
        """When it is thawed."""
        await self._thawed.wait()
        return await super().renew(ask, verdict)


def test_the_old_store_decides_while_the_new_one_does_not_answer() -> None:
    """Failing, silent or violating its contract, it costs no decision."""
    steps: tuple[Step, ...] = (
        Fail(StoreUnavailable("refused")),
        ScriptedHold(asyncio.Event()),
        ScriptedAnswer(()),
        Fail(ZeroDivisionError()),
    )

    async def work() -> None:
        for step in steps:
            new = ScriptedStore(clock())
            new.then(step)
            moving = _moving(MemoryStore(clock=clock()), new, deadline_us=20_000, clock=clock())
            for _ in range(2):
                (verdict,) = await moving.decide([_ask()])
                assert verdict.allowed
                assert verdict.decisions[0].remaining == 19
                await moving.give_back(_ask(), verdict)
            await moving.aclose()

    run(work())


def test_a_slot_is_kept_in_the_old_store_while_the_new_one_is_frozen() -> None:
    """Its lease is renewed for as long as the request lasts, and no other gets the slot."""

    async def work() -> None:
        new = _Freezing(clock())
        new.thaw()
        old = MemoryStore(clock=clock())
        moving = _moving(old, new, deadline_us=20_000, clock=clock())
        decider = Decider(
            moving,
            deadline_us=20_000,
            share=1,
            max_waiting=1,
            metrics=StoreMetrics(),
            clock=clock(),
        )
        held = rule(SLOT)

        async def take() -> Outcome:
            outcome = decider.decide(_ask(limit=SLOT), [held])
            return outcome if isinstance(outcome, Outcome) else await outcome

        leases = leases_of(await take())
        assert leases is not None
        holding = HeldLease(decider, leases)
        new.freeze()
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert holding.is_held
            other = await take()
            assert not other.verdict.allowed
            assert not other.alone
        holding.release()
        await asyncio.sleep(0.1)
        assert (await take()).verdict.allowed
        await decider.aclose()

    run(work())


@pytest.mark.parametrize("is_old_frozen", [False, True])
def test_each_store_renews_and_takes_back_without_the_other(is_old_frozen: bool) -> None:
    """The caller's patience ends with the old store; the one that answers has done its part."""

    async def work() -> None:
        old, new = _Freezing(clock()), _Freezing(clock())
        moving = _moving(old, new, deadline_us=20_000, clock=clock())
        old.thaw()
        new.thaw()
        (verdict,) = await moving.decide([_ask(limit=SLOT)])
        frozen, answering = (old, new) if is_old_frozen else (new, old)
        frozen.freeze()

        async def within_deadline(call: Coroutine[Any, Any, object]) -> object:
            with Deadline(asyncio.get_running_loop(), 0.02):
                return await call

        late = pytest.raises(StoreTimeout) if is_old_frozen else contextlib.nullcontext()
        for _ in range(4):
            await asyncio.sleep(SLOT.period_us / 2 / 1_000_000)
            with late:
                assert await within_deadline(moving.renew(_ask(limit=SLOT), verdict))
            assert _left(answering.counts, SLOT) == 0
        with late:
            await within_deadline(moving.give_back(_ask(limit=SLOT), verdict))
        assert _left(answering.counts, SLOT) == 1
        await moving.aclose()

    run(work())


def test_a_new_store_that_clings_to_calls_holds_nobody_up() -> None:
    """A call that has ended may take long to let go; the old store has answered long before."""

    class Clinging(AroundMemory):
        async def renew(self, ask: Ask, verdict: Verdict) -> bool:
            try:
                await asyncio.sleep(1e9)
            finally:
                await asyncio.sleep(0.5)
            return await super().renew(ask, verdict)

        async def give_back(self, ask: Ask, verdict: Verdict) -> None:
            await self.renew(ask, verdict)

    async def work() -> None:
        old = MemoryStore(clock=clock())
        moving = _moving(old, Clinging(clock=clock()), deadline_us=20_000, clock=clock())
        (verdict,) = await moving.decide([_ask(limit=SLOT)])
        async with asyncio.timeout(0.02):
            assert await moving.renew(_ask(limit=SLOT), verdict)
        async with asyncio.timeout(0.02):
            await moving.give_back(_ask(limit=SLOT), verdict)
        assert _left(old, SLOT) == 1
        await moving.aclose()

    run(work())


@pytest.mark.parametrize("new_delay_s", [0.0, 0.009])
def test_what_the_new_store_took_is_given_back_if_the_old_one_is_too_late(
    new_delay_s: float,
) -> None:
    """When the caller has given up, whichever of the two answers first or later on."""

    async def work() -> None:
        old, new = _Freezing(clock()), MemoryStore(clock=clock())
        slow = ScriptedStore(clock())
        slow.then(ScriptedDelay(new_delay_s))
        slow._counts = new
        moving = _moving(old, slow, deadline_us=20_000, clock=clock())
        for patience_s in (0.02, 0.001):
            slow.then(ScriptedDelay(new_delay_s))
            with pytest.raises(StoreTimeout), Deadline(asyncio.get_running_loop(), patience_s):
                await moving.decide([_ask(), _ask()])
        await asyncio.sleep(0.02)
        assert len(slow.asked) == 2
        assert _left(new) == 20
        await moving.aclose()

    run(work())


def test_what_the_old_store_took_is_given_back_if_the_caller_has_left() -> None:
    """The verdict had no recipient while the new store was still being asked."""

    async def work() -> None:
        old, new = MemoryStore(clock=clock()), ScriptedStore(clock())
        new.then(ScriptedDelay(0.009))
        moving = _moving(old, new, deadline_us=20_000, clock=clock())
        task = asyncio.create_task(moving.decide([_ask()]))
        await asyncio.sleep(0.005)
        assert _left(old) == 19
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.01)
        assert _left(old) == 20
        assert len(new.given_back) == 1
        await moving.aclose()

    run(work())


def test_no_decision_is_lost_over_giving_back() -> None:
    """If the old store does not take back what the new one refused, that is a refusal still."""

    async def work() -> None:
        old, new = ScriptedStore(clock()), MemoryStore(clock=clock())
        new.decide_now(_ask(cost=20))
        old.then_give_back(Fail(StoreUnavailable("refused")), ScriptedHold(asyncio.Event()))
        moving = _moving(old, new, deadline_us=20_000, clock=clock())
        for _ in range(2):
            with Deadline(asyncio.get_running_loop(), 0.02):
                (verdict,) = await moving.decide([_ask()])
            assert not verdict.allowed
        await moving.aclose()

    run(work())


@pytest.mark.parametrize(("away_s", "begins_after_s"), [(0, 0), (0.1, 0.1), (60, 0.25)])
def test_a_start_gives_the_new_store_a_moment(away_s: float, begins_after_s: float) -> None:
    """It would miss the first requests; but its absence does not prevent a start."""

    async def work() -> None:
        new = ScriptedStore(clock())
        new.is_ready = not away_s
        moving = _moving(MemoryStore(clock=clock()), new, deadline_us=20_000, clock=clock())
        begun_us = clock()()

        def appear() -> None:
            new.is_ready = True

        asyncio.get_running_loop().call_later(away_s, appear)
        await moving.start()
        assert (clock()() - begun_us) / 1_000_000 == pytest.approx(begins_after_s, abs=0.006)
        assert moving.is_ready
        await moving.aclose()
        assert new.is_started
        assert new.is_closed

    run(work())


def test_it_is_sharded_if_the_old_store_is() -> None:
    """Each server of the old store fails by itself, so callers have to know which one is meant."""

    class Sharded(AroundMemory):
        def shard(self, ask: Ask) -> str:
            return ask.keys[0]

    moving = _moving(Sharded(), MemoryStore())
    assert isinstance(moving, ShardedStore)
    assert moving.shard(_ask("a")) == "a"
    assert not isinstance(_moving(MemoryStore(), Sharded()), ShardedStore)


async def test_the_failure_of_the_old_store_is_a_failure() -> None:
    """It alone has counted everything; what follows is the policy's word."""
    old = ScriptedStore()
    old.then(Fail(StoreUnavailable("refused")))
    moving = _moving(old, MemoryStore())
    with pytest.raises(StoreUnavailable):
        await moving.decide([_ask()])
    await moving.aclose()


@given(st.text(), st.integers(0, PARTS_PER_WHOLE), st.integers(0, PARTS_PER_WHOLE))
def test_a_larger_share_holds_the_smaller_one(key: str, one: int, other: int) -> None:
    """A key that moves keeps moving when the share grows, on every gateway alike."""
    smaller, larger = sorted((one, other))
    assert chosen(smaller)(LIMIT, key) <= chosen(larger)(LIMIT, key)


def test_a_share_is_about_so_many_keys_of_the_policies_named() -> None:
    """A tenth is a tenth; other policies do not move."""
    tenth = chosen(PARTS_PER_WHOLE // 10, ["api"])
    assert 800 < sum(tenth(LIMIT, str(number)) for number in range(10_000)) < 1200
    assert not chosen(PARTS_PER_WHOLE, ["other"])(LIMIT, "k")
