"""Hits that are told after the fact: tokens that a request turned out to cost."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from gateway.observe.metrics import GatewayMetrics
from gateway.systems.envoy.messages import OK, OVER_LIMIT, Descriptor, DescriptorStatus, EnvoyStatus
from gateway.wiring.limiter import store_of
from tests.envoy_rls import codes, config_of, serving, still_clock
from tests.mariadb import MariaDB
from tests.processes import free_port
from tests.servers import RedisServer

HOUR: Final = 3600
RULES: Final = """
    { match: { a: "*" }, limit: 10/h }
    { match: { b: "*" }, limit: 10/h }
    { match: { d: "*" }, limit: 10/h, debits: on }
    { match: { s: "*" }, limit: 10/h, shadow: on }
"""
CONFIG: Final = config_of(RULES)
TEN: Final = DescriptorStatus(10, 3)


def said(key: str, hits: int | None, *, is_refund: bool = False) -> Descriptor:
    """A descriptor that says itself what it costs."""
    return Descriptor(((key, "1"),), hits=hits, is_refund=is_refund)


async def test_a_debit_counts_and_the_next_look_is_over() -> None:
    """3,000 of 1,000 tokens do, as well as 11 of 10; the answer has the time until then."""
    async with serving(CONFIG, still_clock()) as service:
        assert (await service.ask(said("a", 0))).statuses == [EnvoyStatus(OK, TEN, 10, 0)]
        assert (await service.ask(said("a", 8))).statuses == [EnvoyStatus(OK, TEN, 2, 2880)]
        assert codes(await service.ask(said("a", 0))) == (OK, [OK])
        assert (await service.ask(said("a", 3))).statuses == [EnvoyStatus(OVER_LIMIT, TEN, 0, 360)]
        assert (await service.ask(said("a", 0))).statuses == [EnvoyStatus(OVER_LIMIT, TEN, 0, 360)]
        assert (await service.ask(said("a", None))).statuses == [
            EnvoyStatus(OVER_LIMIT, TEN, 0, 720)
        ]


async def test_as_much_as_the_limit_is_not_over_it() -> None:
    """One more request passes, as with Envoy's own service: nothing is owed yet."""
    async with serving(CONFIG, still_clock()) as service:
        await service.ask(said("a", 10))
        assert (await service.ask(said("a", 0))).statuses == [EnvoyStatus(OK, TEN, 0, HOUR)]


async def test_no_more_than_one_limit_is_owed() -> None:
    """So that it has an end."""
    clock = still_clock()
    async with serving(CONFIG, clock) as service:
        for hits in (10**6, 2**64 - 1, 3000):
            assert codes(await service.ask(said("a", hits))) == (OVER_LIMIT, [OVER_LIMIT])
        assert (await service.ask(said("a", 0))).statuses == [EnvoyStatus(OVER_LIMIT, TEN, 0, HOUR)]
        clock.advance(seconds=HOUR)
        assert (await service.ask(said("a", 0))).statuses == [EnvoyStatus(OK, TEN, 0, HOUR)]


async def test_debits_are_told_by_that_all_descriptors_say_what_they_cost() -> None:
    """A call in which one does not is a request: what does not fit spends nothing."""
    async with serving(CONFIG, still_clock()) as service:
        assert codes(await service.ask(said("a", 11), said("b", None))) == (OVER_LIMIT, [2, OK])
        reply = await service.ask(said("a", 0), said("b", 0))
        assert reply.statuses == [EnvoyStatus(OK, TEN, 10, 0)] * 2
        assert (await service.ask(said("a", None), hits=11)).code == OVER_LIMIT
        assert (await service.ask(said("a", 0))).statuses == [EnvoyStatus(OK, TEN, 10, 0)]


async def test_one_debit_that_is_over_takes_no_other_back() -> None:
    """All of them were used; a descriptor that gives back may be among them."""
    async with serving(CONFIG, still_clock()) as service:
        reply = await service.ask(said("a", 11), said("b", 4), said("s", 2, is_refund=True))
        assert codes(reply) == (OVER_LIMIT, [OVER_LIMIT, OK, OK])
        assert reply.statuses[1].remaining == 6
        reply = await service.ask(said("a", 0), said("b", 0))
        assert [one.remaining for one in reply.statuses] == [0, 6]


async def test_a_rule_may_say_that_its_hits_are_debits() -> None:
    """For descriptors without a number."""
    async with serving(CONFIG, still_clock()) as service:
        for _ in range(11):
            await service.ask(said("d", None))
        assert codes(await service.ask(said("d", 0))) == (OVER_LIMIT, [OVER_LIMIT])


async def test_what_is_owed_may_be_given_back() -> None:
    """A client that was debited too much has the remainder immediately."""
    async with serving(CONFIG, still_clock()) as service:
        await service.ask(said("a", 14))
        await service.ask(said("a", 6, is_refund=True))
        assert (await service.ask(said("a", 0))).statuses[0].remaining == 2


async def test_a_listener_may_have_no_debits() -> None:
    """Then hits are requests, and a query never refuses."""
    config = config_of(RULES.replace(", debits: on", ""), options="debits: off")
    async with serving(config, still_clock()) as service:
        assert codes(await service.ask(said("a", 11))) == (OVER_LIMIT, [OVER_LIMIT])
        assert (await service.ask(said("a", 0))).statuses == [EnvoyStatus(OK, TEN, 10, 0)]


async def test_a_debit_in_shadow_counts() -> None:
    """And refuses no request."""
    async with serving(CONFIG, still_clock()) as service:
        assert codes(await service.ask(said("s", 14))) == (OK, [OK])
        assert codes(await service.ask(said("s", 0))) == (OK, [OK])
        refused = service.metrics.policy("shop/s=*").refused
        assert refused == 2


@pytest.mark.parametrize("terms", ["strict", "leased", "eventual"])
def test_debits_are_the_stores_under_any_consistency(redis_server: RedisServer, terms: str) -> None:
    """What a gateway decides by itself knows nothing of what is owed."""
    _over(redis_server.url, f"consistency: {terms}")


@pytest.mark.parametrize("algorithm", ["token_bucket", "sliding_window_log", "paced_history"])
def test_debits_count_in_mysql(mariadb: MariaDB, algorithm: str) -> None:
    """In the transaction that has locked the row."""
    _over(mariadb.url, f"algorithm: {algorithm}")


def _over(url: str, more: str) -> None:
    """A debit that exceeds, on a store: the next look is over, whoever asks."""
    rule = f'{{ match: {{ a: "*" }}, limit: 10/h, {more} }}'
    store = f"store: {{ url: '{url}', deadline: 20s }}\ndomain: t{free_port()}"
    config = config_of(rule, more=store)
    first, second = (store_of(config, GatewayMetrics()) for _ in range(2))

    async def ask() -> None:
        async with serving(config, first) as service:
            assert codes(await service.ask(said("a", 0))) == (OK, [OK])
            assert codes(await service.ask(said("a", 14))) == (OVER_LIMIT, [OVER_LIMIT])
            assert codes(await service.ask(said("a", 0))) == (OVER_LIMIT, [OVER_LIMIT])
        async with serving(config, second) as service:
            assert codes(await service.ask(said("a", 0))) == (OVER_LIMIT, [OVER_LIMIT])

    asyncio.run(ask())
