"""`Limiter.slot`: at most so many at once, for as long as they last."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway import Limiter, LimitExceeded, Policy
from gateway.base.errors import StoreUnavailable
from gateway.stores.memory.store import MemoryStore
from gateway.stores.scripted import ScriptedStore
from tests.virtual_time import clock, run

LEASE_S = 3


def test_a_slot_outlasts_its_lease_and_is_free_afterwards() -> None:
    """It is renewed while the block runs, and released when the block is left, however."""

    async def told() -> None:
        policy = Policy("one", "1 at once", lease=f"{LEASE_S}s")
        async with Limiter(policy, store=MemoryStore(clock=clock())) as limiter:
            async with limiter.slot("k") as slot:
                assert slot.decision.remaining == 0
                await asyncio.sleep(10 * LEASE_S)
                assert slot.is_held
                with pytest.raises(LimitExceeded):
                    async with limiter.slot("k", max_wait=0):
                        pass
            with pytest.raises(KeyError):
                async with limiter.slot("k", max_wait=0):
                    raise KeyError
            async with limiter.slot("k", max_wait=0):
                pass

    run(told())


def test_who_waits_for_a_slot_is_woken_when_one_is_free() -> None:
    """Immediately, in order, and not before; a cancelled one leaves nothing taken."""

    async def told() -> None:
        async with Limiter(Policy("one", "1 at once"), store=MemoryStore(clock=clock())) as limiter:
            loop = asyncio.get_running_loop()
            start, came = loop.time(), []

            async def hold(number: int) -> None:
                async with limiter.slot():
                    came.append((number, round(loop.time() - start, 3)))
                    await asyncio.sleep(0.11)

            holders = [asyncio.create_task(hold(number)) for number in range(4)]
            await asyncio.sleep(0.05)
            holders[1].cancel()
            await asyncio.gather(*holders, return_exceptions=True)
            assert came == [(0, 0.0), (2, 0.11), (3, 0.22)]
            with pytest.raises(LimitExceeded):
                async with limiter.slot(), limiter.slot(max_wait=0.2):
                    pass
            assert (await limiter.peek()).remaining == 1

    run(told())


def test_what_other_limits_counted_stays_spent() -> None:
    """Releasing a slot gives back the slot, not the request that was made."""

    async def told() -> None:
        policy = Policy("both", "2/h", "1 at once")
        async with Limiter(policy, store=MemoryStore(clock=clock())) as limiter:
            for _ in range(2):
                async with limiter.slot(max_wait=0):
                    pass
            with pytest.raises(LimitExceeded):
                async with limiter.slot(max_wait=0):
                    pass

    run(told())


def test_a_slot_that_is_lost_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is silent for the time of a lease may have given the place away."""

    class Silent(ScriptedStore):
        async def renew(self, ask: object, verdict: object) -> bool:
            raise StoreUnavailable("refused")

    async def told() -> None:
        policy = Policy("one", "1 at once", lease=f"{LEASE_S}s")
        async with Limiter(policy, store=Silent(clock())) as limiter, limiter.slot() as slot:
            await asyncio.sleep(LEASE_S / 2)
            assert slot.is_held
            await asyncio.sleep(LEASE_S)
            assert not slot.is_held

    with caplog.at_level(logging.WARNING):
        run(told())
    assert "a place of policy 'one' was lost while in use" in caplog.text


def test_only_limits_in_flight_have_slots() -> None:
    """Asking for one elsewhere is a mistake of the program."""

    async def told() -> None:
        async with Limiter(Policy("pay", "1/s"), store=MemoryStore(clock=clock())) as limiter:
            with pytest.raises(ValueError, match="pay has no limit such as '5 at once'"):
                async with limiter.slot():
                    pass

    run(told())
