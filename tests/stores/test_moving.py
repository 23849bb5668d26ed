"""Moving between stores: at every moment one of them sees all requests of a key."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import StoreUnavailable
from gateway.limits.rate import Limit
from gateway.limits.terms import PARTS_PER_WHOLE
from gateway.stores.base import Ask, Store
from gateway.stores.memory import MemoryStore
from gateway.stores.moving import MovingStore, chosen
from gateway.stores.redis import RedisStore
from gateway.stores.scripted import Fail, Hold, ScriptedStore
from tests.servers import RedisServer, until
from tests.stores.contract import StoreContract

HOUR_US = 3_600_000_000
LIMIT = Limit(20, HOUR_US, 20, "sliding_window_log", scope="api/ip")
ALL = chosen(PARTS_PER_WHOLE)
HALF = chosen(PARTS_PER_WHOLE // 2)
DEADLINE_US = 2_000_000
KEYS = [f"client-{number}" for number in range(12)]


def _ask(key: str = "k", cost: int = 1) -> Ask:
    return Ask((LIMIT,), (key,), cost, 0)


class TestMovingFromMemoryToMemory(StoreContract):
    """A store that is moving keeps the contract of all stores."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[MovingStore]:
        """All keys move."""
        store = MovingStore(MemoryStore(), MemoryStore(), ALL, deadline_us=DEADLINE_US)
        await store.start()
        yield store
        await store.aclose()


class TestMovingFromMemoryToRedis(StoreContract):
    """Likewise where the new store is somewhere else, and half of the keys move."""

    @pytest.fixture
    async def store(self, redis_server: RedisServer) -> AsyncIterator[MovingStore]:
        """From this process to a real server."""
        new = RedisStore(redis_server.url, domain="moving", deadline_us=DEADLINE_US)
        store = MovingStore(MemoryStore(), new, HALF, deadline_us=DEADLINE_US)
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
        half = MovingStore(old, new, HALF, deadline_us=DEADLINE_US)
        both = MovingStore(old, new, ALL, deadline_us=DEADLINE_US)
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
        moving = MovingStore(stores[0], stores[1], ALL, deadline_us=DEADLINE_US)
        (verdict,) = await moving.decide([_ask()])
        assert not verdict.allowed
        assert verdict.retry_after_us > 0
        assert stores[free].decide_now(_ask(cost=0)).decisions[0].remaining == 20
        await moving.aclose()


async def test_the_old_store_decides_while_the_new_one_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Failing or silent, it costs nobody a decision; that is logged once, and its return too."""
    new = ScriptedStore()
    new.then(Fail(StoreUnavailable("refused")), Hold(asyncio.Event()))
    moving = MovingStore(MemoryStore(), new, ALL, deadline_us=20_000)
    remaining = []
    for _ in range(3):
        (verdict,) = await moving.decide([_ask()])
        assert verdict.allowed
        remaining.append(verdict.decisions[0].remaining)
        await moving.give_back(_ask(), verdict)
    assert remaining == [19, 19, 19]
    assert [record.getMessage().split(" (")[0] for record in caplog.records] == [
        "the store moved to does not decide",
        "the store moved to decides again",
    ]
    await moving.aclose()


async def test_the_failure_of_the_old_store_is_a_failure() -> None:
    """It alone has counted everything; what follows is the policy's word."""
    old = ScriptedStore()
    old.then(Fail(StoreUnavailable("refused")))
    moving = MovingStore(old, MemoryStore(), ALL, deadline_us=DEADLINE_US)
    with pytest.raises(StoreUnavailable):
        await moving.decide([_ask()])
    await moving.aclose()


@given(st.text(), st.integers(0, PARTS_PER_WHOLE), st.integers(0, PARTS_PER_WHOLE))
def test_a_larger_share_holds_the_smaller_one(key: str, one: int, other: int) -> None:
    """A key that moves goes on moving when the share grows, on every gateway alike."""
    smaller, larger = sorted((one, other))
    assert chosen(smaller)(LIMIT, key) <= chosen(larger)(LIMIT, key)


def test_a_share_is_about_so_many_keys_of_the_policies_named() -> None:
    """A tenth is a tenth; other policies do not move."""
    tenth = chosen(PARTS_PER_WHOLE // 10, ["api"])
    assert 800 < sum(tenth(LIMIT, str(number)) for number in range(10_000)) < 1200
    assert not chosen(PARTS_PER_WHOLE, ["other"])(LIMIT, "k")
