"""Limiters that share a store, and one whose store is away: on a real Redis."""

from __future__ import annotations

import asyncio

from gateway import Limiter, Policy
from tests.servers import RedisServer, becomes, until

PAY = Policy("pay", "10/d per ip", "15/d per all")


async def test_limiters_on_one_redis_are_one(redis_server: RedisServer) -> None:
    """What one counts the others see; the first request finds the store connected."""
    # A loaded machine is no reason to decide alone.
    store = {"url": redis_server.url, "deadline": "20s"}
    async with (
        Limiter(PAY, store=store) as first,
        Limiter(PAY, store=store) as second,
        Limiter(PAY, store=store, domain="other") as other,
    ):
        asked = [limiter.acquire("alice") for limiter in (first, second) for _ in range(10)]
        decisions = await asyncio.gather(*asked)
        assert sum(decision.allowed for decision in decisions) == 10
        assert not any(decision.decided_alone for decision in decisions)
        assert (await second.acquire("bob", 5)).allowed
        assert (await first.peek("carol")).remaining == 0
        assert (await other.acquire("alice", 10)).allowed


async def test_a_store_that_is_away_is_asked_again_when_it_is_back(
    redis_server: RedisServer,
) -> None:
    """Opening does not fail without it; what was decided alone is counted afterwards."""
    redis_server.stop()
    settings = {"url": redis_server.url, "deadline": "20s"}
    async with Limiter(Policy("pay", "2/d"), store=settings) as limiter:
        assert (await limiter.acquire("alice")).decided_alone
        redis_server.start()
        await until(lambda: limiter.is_ready)
        assert not (await limiter.acquire("bob")).decided_alone

        async def remaining() -> int | None:
            return (await limiter.peek("alice")).remaining

        await becomes(remaining, 1)
        assert [bool(await limiter.acquire("alice")) for _ in range(2)] == [True, False]


async def test_leases_and_moves_are_as_in_a_gateway(redis_server: RedisServer) -> None:
    """A leased policy asks the store less often; while counts move, both stores hold them."""
    old, new = redis_server.url, redis_server.url.removesuffix("/0") + "/1"
    often = Policy("often", "1000/d", consistency="leased", leased={"size": 100})
    store = {"url": old, "deadline": "20s", "migrate": {"to": new}}
    async with Limiter(often, PAY, store=store) as limiter:
        for _ in range(200):
            assert (await limiter.acquire("alice", policy="often")).allowed
        assert limiter.metrics.store("main").decisions < 20
        assert (await limiter.acquire("alice", 10, policy="pay")).allowed
    async with Limiter(PAY, store={"url": new, "deadline": "20s"}) as moved:
        assert not (await moved.acquire("alice")).allowed
