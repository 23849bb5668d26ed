"""Deciding from what was last heard: never a wait for the store, and a debt that is repaid."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.clock import ManualClock
from gateway.consistency.hearsay import MAX_KEYS, Hearsay
from gateway.consistency.reports import MAX_PIECES
from gateway.decider import Outcome
from gateway.limits.rate import Limit
from gateway.limits.terms import Eventual
from gateway.stores.base import Ask
from tests.consistency.bench import FOREVER_US, SECOND_US, Gateways, rule
from tests.consistency.laws import excess
from tests.virtual_time import run

HOUR_US = 3600 * SECOND_US
OFTEN = Eventual(50_000)
TEN = Limit(10, HOUR_US, 10, scope="p/ip")


def test_the_answer_is_there_at_once() -> None:
    """The store is not asked before a request is decided on, however slow it is."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN), delays_s=[0.015] * 100)
        for number in range(12):
            asked = Ask((TEN,), ("k",), 1, FOREVER_US)
            outcome = gateways.deciders[0].decide(asked, gateways.rules)
            assert isinstance(outcome, Outcome)
            assert outcome.verdict.allowed == (number < 10)
        assert gateways.stores[0].asks == 0
        await gateways.aclose()

    run(told())


def test_what_passed_is_reported_in_one_batch() -> None:
    """After an interval the store knows of it; many requests of a key are one question."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN))
        for _ in range(7):
            await gateways.ask()
        await gateways.ask(key="other")
        assert gateways.remaining(TEN) == 10
        await asyncio.sleep(0.06)
        assert gateways.remaining(TEN) == 3
        assert gateways.remaining(TEN, "other") == 9
        assert gateways.stores[0].asks == 2
        await gateways.aclose()

    run(told())


def test_what_others_let_through_is_heard() -> None:
    """Who has reported knows what is left for all, and lets no more through."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN), number=2)
        for _ in range(6):
            await gateways.ask(0)
        await asyncio.sleep(0.06)
        assert (await gateways.ask(1)).verdict.allowed
        await asyncio.sleep(0.06)
        outcomes = [await gateways.ask(1) for _ in range(5)]
        assert [each.verdict.allowed for each in outcomes] == [True] * 3 + [False] * 2
        assert outcomes[-1].verdict.retry_after_us > 0
        await gateways.aclose()

    run(told())


def test_what_was_too_much_is_missing_afterwards() -> None:
    """Two gateways that have not heard of each other let too much through, and then too little."""

    async def told() -> None:
        bucket = Limit(10, SECOND_US, 10, scope="p/ip")
        gateways = Gateways(rule(bucket, OFTEN), number=2)
        for gateway in (0, 1):
            for _ in range(10):
                assert (await gateways.ask(gateway)).verdict.allowed
        await asyncio.sleep(0.06)
        # Ten too many are missing for a second; who has reported last has heard of them.
        assert await gateways.hammer(1, 0.9, 0.01) == 0
        assert await gateways.hammer(1, 1, 0.01) in (9, 10, 11)
        await gateways.aclose()

    run(told())


def test_without_its_store_each_gateway_keeps_the_limit_by_itself() -> None:
    """Fail-permissive: nobody is refused for it, and nobody waits."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN), number=2)
        for store in gateways.stores:
            store.is_down = True
        outcomes = []
        for _ in range(12):
            outcomes += [await gateways.ask(0), await gateways.ask(1)]
            await asyncio.sleep(0.06)
        assert sum(each.verdict.allowed for each in outcomes) == 20
        assert not any(each.alone for each in outcomes)
        await gateways.aclose()

    run(told())


def test_what_a_strict_limit_refuses_is_not_reported() -> None:
    """All limits of a request are spent or none, whoever decides on them."""

    async def told() -> None:
        strict = Limit(3, HOUR_US, 3, scope="strict/ip")
        gateways = Gateways(rule(TEN, OFTEN), rule(strict, None))
        outcomes = [await gateways.ask() for _ in range(8)]
        assert [each.verdict.allowed for each in outcomes] == [True] * 3 + [False] * 5
        gateways.deciders[0].give_back(outcomes[2])
        await gateways.aclose()
        assert (gateways.remaining(TEN), gateways.remaining(strict)) == (8, 1)

    run(told())


def test_the_last_report_is_made_when_the_gateway_ends() -> None:
    """What passed in the last moments is counted as well."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN))
        for _ in range(4):
            await gateways.ask()
        await gateways.aclose()
        assert gateways.remaining(TEN) == 6

    run(told())


def test_memory_is_bounded() -> None:
    """Of more keys than are remembered the oldest go unreported, and a report has an end."""
    book = Hearsay(lambda: 0, lambda: 0)
    for number in range(MAX_KEYS + 10):
        book.decide(TEN, str(number), OFTEN, 1)
    reports = book.reports(OFTEN.interval_us)
    assert len(reports) == MAX_KEYS
    assert reports[0].key == "10"
    assert not book.is_due(OFTEN.interval_us)
    time = ManualClock()
    book = Hearsay(time, time)
    fast = Limit(10_000, SECOND_US, 1, scope="fast/ip")
    for _ in range(2 * MAX_PIECES):
        book.decide(fast, "k", OFTEN, 1)
        time.advance(us=100)
    (report,) = book.reports(OFTEN.interval_us)
    assert len(report.asks) == MAX_PIECES


def test_under_load_the_limit_is_reached() -> None:
    """One gateway alone lets through at least 95 % of what strict would, and not more."""
    limit = Limit(200, SECOND_US, 50, scope="p/ip")

    async def passed(terms: Eventual | None) -> int:
        gateways = Gateways(rule(limit, terms))
        passed = await gateways.hammer(0, 10, 0.001)
        await gateways.aclose()
        return passed

    strict = run(passed(None))
    assert 0.95 * strict <= run(passed(OFTEN)) <= strict + 1


@pytest.mark.parametrize("algorithm", ["token_bucket", "sliding_window_log"])
@settings(max_examples=40)
@given(
    st.integers(1, 40),
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 30), st.sampled_from([0.001, 0.03, 0.2])),
        min_size=1,
        max_size=25,
    ),
)
def test_what_is_stated_holds_in_every_window(
    algorithm: str, count: int, steps: list[tuple[int, int, float]]
) -> None:
    """Three gateways, any schedule: no more than three times the limit."""
    limit = Limit(count, SECOND_US, count, algorithm, scope="p/ip")

    async def told() -> list[int]:
        gateways = Gateways(rule(limit, OFTEN), number=3)
        for gateway, requests, pause_s in steps:
            for _ in range(requests):
                await gateways.ask(gateway)
            await asyncio.sleep(pause_s)
        await gateways.aclose()
        return gateways.passed

    assert excess(replace(limit, count=3 * count, burst=3 * count), run(told())) <= 0
