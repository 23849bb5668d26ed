"""The store that workers share keeps the contract of all stores, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from gateway.base.clock import ManualClock, monotonic_us
from gateway.base.errors import StoreError, StoreTimeout, StoreUnavailable
from gateway.limits.rate import Limit
from gateway.stores.memory.store import MemoryStore
from gateway.stores.shared import frames
from gateway.stores.shared.server import FIRST_LOOK, SharedServer
from gateway.stores.shared.store import MAX_CALLS, MAX_PLANS_KEPT, SharedStore
from tests.servers import becomes, until
from tests.stores.contract import BUCKET, IN_FLIGHT, StoreContract, ask, remaining

PATIENT_US = 5_000_000


@asynccontextmanager
async def limiter(
    memory: MemoryStore, clock: Callable[[], int] = monotonic_us
) -> AsyncIterator[tuple[socket.socket, SharedServer]]:
    """Let `memory` be asked over the socket; at the end, wait until it is hung up."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_unix_connection(
        lambda: SharedServer(memory, clock), sock=theirs
    )
    yield ours, server
    transport.abort()
    await until(lambda: server._transport is None)


@asynccontextmanager
async def silence(
    clock: Callable[[], int] = monotonic_us,
) -> AsyncIterator[tuple[SharedStore, socket.socket]]:
    """A worker's store, and the other end of its connection, where nobody answers."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with theirs:
        store = SharedStore(2, PATIENT_US, clock)
        await store.attach(ours)
        yield store, theirs
        store.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def worker(
    memory: MemoryStore, clock: Callable[[], int] = monotonic_us, deadline_us: int = PATIENT_US
) -> AsyncIterator[SharedStore]:
    """The store of one worker."""
    store = SharedStore(2, deadline_us, clock)
    await store.start()
    async with limiter(memory, clock) as (connection, _):
        await store.attach(connection)
        yield store
        store.close()


class TestShared(StoreContract):
    """What every store must do."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[SharedStore]:
        """The store of one worker, before an empty memory store."""
        async with worker(MemoryStore()) as store:
            yield store


async def test_workers_are_one_limiter() -> None:
    """What one takes, another does not get."""
    memory = MemoryStore()
    async with worker(memory) as first, worker(memory) as second:
        assert (await first.decide([ask(BUCKET, cost=3)]))[0].allowed
        assert await remaining(second, BUCKET) == 2
        assert second.gateways == 2


async def test_limits_travel_once() -> None:
    """An ask after the first one costs some 40 bytes and its key, however long its limits are."""
    limit = replace(BUCKET, scope="s" * 5000)
    async with silence() as (store, limiters_end):
        sizes = []
        for _ in range(2):
            # As equal limits, not as the same: a route without one of its keys makes such.
            asking = asyncio.create_task(store.decide([ask(replace(limit))]))
            splitter, kinds, size = frames.Splitter(), set[int](), 0
            while frames.DECIDE not in kinds:
                data = await asyncio.get_running_loop().sock_recv(limiters_end, 1 << 16)
                size += len(data)
                kinds |= {one[0] for one in splitter.feed(data)}
            sizes.append(size)
            asking.cancel()
        assert sizes[0] > 5000
        assert sizes[1] < 50


async def test_limits_that_change_again_and_again_fill_no_memory() -> None:
    """After 1,000 reloads both ends have the plans of the last one, and what was held is known."""
    memory = MemoryStore()
    store = SharedStore(1, PATIENT_US)
    async with limiter(memory) as (connection, server):
        await store.attach(connection)
        link = store._link
        assert link is not None
        held = (await store.decide([ask(IN_FLIGHT)]))[0]
        for number in range(1_000):
            store.reconfigure(PATIENT_US)
            changed = replace(BUCKET, burst=BUCKET.burst + number)
            verdicts = await store.decide([ask(changed, cost=0), ask(IN_FLIGHT, cost=0)])
            assert verdicts[0].decisions[0].limit == changed.burst
        assert len(server._plans) == len(link._numbers) == 2
        assert len(link._seen) <= 4
        await store.give_back(ask(IN_FLIGHT), held)
        assert await remaining(store, IN_FLIGHT) == IN_FLIGHT.count
        assert len(server._slots) == 0
        store.close()


async def test_plans_without_number_are_forgotten_in_time() -> None:
    """However many limits there are, as with overrides from a database, none is the last."""
    memory = MemoryStore()
    store = SharedStore(1, 0)
    async with limiter(memory) as (connection, server):
        await store.attach(connection)
        most = 0
        for begin in range(0, MAX_PLANS_KEPT + 3_000, 1_000):
            asks = [
                ask(replace(BUCKET, count=1 + begin + one, burst=5 + begin + one), cost=0)
                for one in range(1_000)
            ]
            verdicts = await store.decide(asks)
            assert [one.decisions[0].limit for one in verdicts] == [
                one.limits[0].burst for one in asks
            ]
            most = max(most, len(server._plans))
        assert most <= MAX_PLANS_KEPT + 1_000
        assert len(server._plans) < 5_000
        store.close()


async def test_what_a_worker_held_is_free_when_its_connection_ends() -> None:
    """At once, not after a lease; but not what another worker holds, or what it gave back."""
    memory = MemoryStore()
    async with worker(memory) as other:
        async with worker(memory) as first:
            held = await first.decide([ask(IN_FLIGHT)] * 3)
            await first.give_back(ask(IN_FLIGHT), held[0])
            assert await first.renew(ask(IN_FLIGHT), held[1])
            assert (await other.decide([ask(IN_FLIGHT, cost=2)]))[0].allowed
            assert await remaining(other, IN_FLIGHT) == 1
        await becomes(lambda: remaining(other, IN_FLIGHT), 3)


async def test_what_expired_unnoticed_is_forgotten() -> None:
    """A worker that never gives back what it holds does not fill the limiter's memory."""
    clock = ManualClock(1)
    memory = MemoryStore(clock=clock)
    short = Limit(10 * FIRST_LOOK, 1_000, 10 * FIRST_LOOK, "concurrency", scope="short")
    store = SharedStore(1, 0, clock)
    async with limiter(memory, clock) as (connection, server):
        await store.attach(connection)
        for _ in range(20):
            clock.advance(us=2_000)
            await store.decide([ask(short)] * (FIRST_LOOK // 4))
        assert len(server._slots) <= 2 * FIRST_LOOK
        store.close()


async def test_a_batch_that_nobody_waits_for_any_more_spends_nothing() -> None:
    """What lay in the socket while the limiter was frozen is answered late, and not counted."""
    memory = MemoryStore()
    clock = ManualClock(10)
    limiter_clock = ManualClock(10)
    store = SharedStore(2, 100, clock)
    async with limiter(memory, limiter_clock) as (connection, _):
        await store.attach(connection)
        limiter_clock.advance(us=101)
        with pytest.raises(StoreTimeout) as caught:
            await store.decide([ask(BUCKET)])
        assert caught.value.reason == "late"
        limiter_clock.now_us = 10
        assert await remaining(store, BUCKET) == 5
        store.close()


async def test_a_call_that_is_given_up_never_takes_anothers_answer() -> None:
    """Half of many calls at once are cancelled; the others get the answers to their own."""
    memory = MemoryStore()
    limits = [replace(BUCKET, count=n, burst=n, scope=f"n{n}") for n in range(1, 101)]
    async with worker(memory) as store:
        tasks = [asyncio.create_task(store.decide([ask(limit, cost=0)])) for limit in limits]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks[1::2])
        assert [verdict.decisions[0].limit for (verdict,) in answers] == list(range(2, 101, 2))
        assert await remaining(store, limits[9]) == 10


async def test_without_a_limiter_calls_fail_at_once() -> None:
    """Before there is a connection, and after it is lost; with a new one they do not."""
    unconnected = SharedStore(2, PATIENT_US)
    assert not unconnected.is_ready
    with pytest.raises(StoreUnavailable) as caught:
        await unconnected.decide([ask(BUCKET)])
    assert caught.value.reason == "not_connected"

    async with silence() as (store, limiters_end):
        was_ready = store.is_ready
        asking = asyncio.create_task(store.decide([ask(BUCKET)]))
        await asyncio.sleep(0)
        limiters_end.close()
        with pytest.raises(StoreUnavailable):
            await asking
        assert (was_ready, store.is_ready) == (True, False)
        async with limiter(MemoryStore()) as (connection, _):
            await store.attach(connection)
            assert (await store.decide([ask(BUCKET)]))[0].allowed


async def test_what_a_silent_limiter_is_asked_is_bounded() -> None:
    """Calls beyond the bound fail immediately, and the store is not ready meanwhile."""
    clock = ManualClock(1)
    async with silence(clock) as (store, limiters_end):
        tasks = [asyncio.create_task(store.decide([ask(BUCKET)])) for _ in range(MAX_CALLS)]
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable) as caught:
            await store.decide([ask(BUCKET)])
        assert caught.value.reason == "backlog"
        clock.advance(seconds=1.5)
        assert not store.is_ready
        limiters_end.close()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, StoreError) for end in ends)


HOSTILE = {
    "noise": b"\x00\xff" * 500,
    "a huge length": b"\xff\xff\xff\xff",
    "an empty frame": b"\0\0\0\0",
    "an unknown kind": frames.frame(99, b"x"),
    "no such plan": frames.frame(frames.DECIDE, b"\0" * 8 + b"\xff" * 24),
    "half an ask": frames.frame(frames.DECIDE, b"\0" * 11),
    "a plan of nothing": frames.frame(frames.PLAN, b"[]"),
    "a plan of words": frames.frame(frames.PLAN, b'[["a","b","c","d","e","f","g","h","i"]]'),
    "a plan that is no JSON": frames.frame(frames.PLAN, b"{"),
    "a very deep plan": frames.frame(frames.PLAN, b"[" * 100_000),
    "a receipt too few": frames.frame(frames.GIVE_BACK, b"\0" * 20),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_bytes_end_their_own_connection_only(name: str) -> None:
    """The sender is disconnected; another worker continues, with its counts as they were."""
    memory = MemoryStore()
    async with worker(memory) as honest, limiter(memory) as (hostile, _):
        assert (await honest.decide([ask(BUCKET, cost=2)]))[0].allowed
        hostile.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(hostile, HOSTILE[name])
        with hostile, suppress(ConnectionError):
            async with asyncio.timeout(20):
                assert await loop.sock_recv(hostile, 1) == b""
        assert await remaining(honest, BUCKET) == 3


@pytest.mark.parametrize(
    "nonsense", [frames.frame(frames.VERDICTS, b"short"), frames.frame(77), b"\xff" * 4]
)
async def test_an_answer_that_is_none_is_an_error(nonsense: bytes) -> None:
    """Never a verdict, and never a wait."""
    async with silence() as (store, limiters_end):
        loop = asyncio.get_running_loop()
        asking = asyncio.create_task(store.decide([ask(BUCKET)]))
        await loop.sock_recv(limiters_end, 1 << 16)
        await loop.sock_sendall(limiters_end, nonsense)
        with pytest.raises(StoreError):
            await asking
