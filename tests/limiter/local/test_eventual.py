"""Deciding from what was last heard: never a wait for the store, and a debt that is repaid."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gateway.base.clock import ManualClock
from gateway.limiter.decider import Outcome
from gateway.limiter.local.eventual import MAX_KEYS, MAX_PROBES, EventualState
from gateway.limiter.local.eventual_state import FULLY_KNOWN
from gateway.limiter.local.reporting import REPORTS_A_CALL
from gateway.limiter.reports import MAX_PIECES
from gateway.limits.consistency_mode import Eventual
from gateway.limits.decision import NEVER
from gateway.limits.rate import Limit
from gateway.stores.base import Ask
from tests.limiter.local.bench import FOREVER_US, SECOND_US, Gateways, rule
from tests.limiter.local.laws import excess
from tests.virtual_time import clock, run

HOUR_US = 3600 * SECOND_US
OFTEN = Eventual(50_000)
ALGORITHMS = (
    *("token_bucket", "sliding_window_log", "sliding_window_counter"),
    *("fixed_window", "paced_history"),
)
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
    """After an interval the store knows of it; many requests of a key are one question.

    It is asked about each key once, when the key is new here.
    """

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN))
        for _ in range(7):
            await gateways.ask()
        await gateways.ask(key="other")
        assert gateways.remaining(TEN) == 10
        await asyncio.sleep(0.06)
        assert gateways.remaining(TEN) == 3
        assert gateways.remaining(TEN, "other") == 9
        assert gateways.stores[0].asks == 2 + 2
        await gateways.aclose()

    run(told())


def test_what_others_let_through_is_heard() -> None:
    """A gateway that has reported knows the remainder of all, and admits no more."""

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
    """Two gateways without each other's reports admit too many, and then too few."""

    async def told() -> None:
        bucket = Limit(10, SECOND_US, 10, scope="p/ip")
        gateways = Gateways(rule(bucket, OFTEN), number=2)
        for gateway in (0, 1):
            for _ in range(10):
                assert (await gateways.ask(gateway)).verdict.allowed
        await asyncio.sleep(0.06)
        # Ten too many are missing for a second; who has reported last has heard of them.
        assert await gateways.hammer(1, 0.9, 0.01) == 0
        assert await gateways.hammer(1, 1, 0.01) in (8, 9, 10)
        await gateways.aclose()

    run(told())


def test_without_its_store_each_gateway_keeps_the_limit_by_itself() -> None:
    """Fail-permissive: no request is refused or waits because of it."""

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
    """All limits of a request are spent or none, whichever side decides on them."""

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
    book = EventualState(lambda: 0, lambda: 0)
    for number in range(MAX_KEYS + 10):
        book.decide(TEN, str(number), OFTEN, 1)
    assert len(book.take_probes(2 * MAX_KEYS)) == MAX_PROBES
    book.gather(OFTEN.interval_us)
    assert not book.is_due(OFTEN.interval_us)
    reports = book.reports(OFTEN.interval_us, 100)
    assert len(reports) == 100
    assert reports[0].key == "10"
    assert len(book.reports(OFTEN.interval_us, 2 * MAX_KEYS)) == MAX_KEYS - 100
    time = ManualClock()
    book = EventualState(time, time)
    fast = Limit(10_000, SECOND_US, 1, scope="fast/ip")
    for _ in range(2 * MAX_PIECES):
        book.decide(fast, "k", OFTEN, 1)
        time.advance(us=100)
    book.gather(OFTEN.interval_us)
    (report,) = book.reports(OFTEN.interval_us, 1)
    assert len(report.asks) == MAX_PIECES


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("count", "period_us"), [(100, SECOND_US), (50, 5 * SECOND_US)])
def test_under_load_the_limit_is_reached(algorithm: str, count: int, period_us: int) -> None:
    """One gateway alone admits at least 95 % of what strict would, and hardly more."""
    burst = count // 4 if algorithm in ("token_bucket", "paced_history") else count
    limit = Limit(count, period_us, burst, algorithm, scope="p/ip")

    async def passed(terms: Eventual | None) -> int:
        gateways = Gateways(rule(limit, terms))
        passed = await gateways.hammer(0, 15, 0.002)
        await gateways.aclose()
        return passed

    strict = run(passed(None))
    # A paced history lets a little more through, the more evenly it is asked.
    assert 0.95 * strict <= run(passed(OFTEN)) <= 1.01 * strict + 1


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


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_was_heard_ends_with_the_limit(algorithm: str) -> None:
    """After a quiet time in which all comes back a key is as free as it is in strict."""
    limit = Limit(5, 4 * SECOND_US, 5, algorithm, scope="p/ip")

    async def told() -> None:
        gateways = Gateways(rule(limit, OFTEN), number=2)
        for _ in range(3):
            for gateway in (0, 1):
                for _ in range(20):
                    await gateways.ask(gateway)
                    await asyncio.sleep(0.013)
            await asyncio.sleep(12)
            assert gateways.remaining(limit) == 5
            outcomes = [await gateways.ask(1) for _ in range(6)]
            assert [each.verdict.allowed for each in outcomes] == [True] * 5 + [False]
            await asyncio.sleep(12)
        await gateways.aclose()

    run(told())


@pytest.mark.parametrize("algorithm", ["token_bucket", "sliding_window_log", "fixed_window"])
@pytest.mark.parametrize("phase_s", [0.5, 3.2])
def test_who_obeys_is_told_what_the_store_knows(algorithm: str, phase_s: float) -> None:
    """For a key that another gateway has used up: when it passes, as in strict."""
    limit = Limit(2, 4 * SECOND_US, 2, algorithm, scope="p/ip")

    async def told() -> None:
        gateways = Gateways(rule(limit, OFTEN), number=2)
        await asyncio.sleep(phase_s)
        for _ in range(2):
            await gateways.ask(0)
        await asyncio.sleep(0.1)
        await gateways.ask(1, cost=0)
        await asyncio.sleep(0.1)
        await gateways.ask(1)
        await asyncio.sleep(0.1)
        asked = Ask((limit,), ("k",), 1, 0)
        strict = gateways.counts.decide_now(asked).retry_after_us
        eventual = (await gateways.ask(1)).verdict
        assert not eventual.allowed
        assert abs(eventual.retry_after_us - strict) < 60_000
        await asyncio.sleep(eventual.retry_after_us / SECOND_US)
        assert (await gateways.ask(1)).verdict.allowed
        await gateways.aclose()

    run(told())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=40)
@given(
    st.integers(1, 20),
    st.sampled_from([SECOND_US, 7 * SECOND_US]),
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=8
    ),
)
def test_who_comes_back_when_told_passes(
    algorithm: str, count: int, period_us: int, steps: list[tuple[int, int, int]]
) -> None:
    """Never too early: the last retry time stays valid for a request that is repeated."""
    limit = Limit(count, period_us, count, algorithm, scope="p/ip")

    async def told() -> None:
        gateways = Gateways(rule(limit, OFTEN), number=2)
        for gateway, requests, cost in steps:
            for _ in range(requests):
                await gateways.ask(gateway, cost=min(cost, count))
            await asyncio.sleep(0.03)
        # All has been reported, and refusals were looked through.
        await asyncio.sleep(0.1)
        verdict = (await gateways.ask(0)).verdict
        if not verdict.allowed:
            await asyncio.sleep(0.1)
            verdict = (await gateways.ask(0)).verdict
        if not verdict.allowed:
            await asyncio.sleep(verdict.retry_after_us / SECOND_US)
            assert (await gateways.ask(0)).verdict.allowed
        await gateways.aclose()

    run(told())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 5])
def test_both_are_spent_and_whoever_obeys_passes(algorithm: str, count: int) -> None:
    """Unreported admissions are allowed for: no retry time is too early."""
    limit = Limit(count, 4 * SECOND_US, count, algorithm, scope="p/ip")

    async def told(phase_s: float, gateway: int) -> None:
        gateways = Gateways(rule(limit, OFTEN), number=2, know_each_other=True)
        await asyncio.sleep(phase_s)
        for _ in range(count):
            for each in (0, 1):
                assert (await gateways.ask(each)).verdict.allowed
        verdict = (await gateways.ask(0)).verdict
        assert not verdict.allowed
        assert verdict.decisions[0].reset_us >= verdict.retry_after_us
        await asyncio.sleep(verdict.retry_after_us / SECOND_US)
        assert (await gateways.ask(gateway)).verdict.allowed
        await gateways.aclose()

    for phase_s in (0, 1.3, 3.93, 3.999):
        for gateway in (0, 1):
            run(told(phase_s, gateway))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=25)
@example(
    2,
    7 * SECOND_US,
    [(0, 1, 1, 0), (0, 1, 1, 0), (1, 1, 1, 0.2), (0, 1, 2, 0.03), (0, 1, 1, 0.03)],
    0,
    1,
    0,
)
@given(
    st.integers(1, 12),
    st.sampled_from([SECOND_US, 7 * SECOND_US]),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(1, 14),
            st.integers(1, 3),
            st.sampled_from([0, 0.003, 0.03, 0.2, 2]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_whoever_obeys_passes_whatever_has_not_been_heard(
    algorithm: str,
    count: int,
    period_us: int,
    steps: list[tuple[int, int, int, float]],
    asked: int,
    asked_cost: int,
    returns_to: int,
) -> None:
    """Never too early at any gateway, whatever passed at others just before, and nothing after."""
    limit = Limit(count, period_us, count, algorithm, scope="p/ip")

    async def told() -> None:
        gateways = Gateways(rule(limit, OFTEN), number=3, know_each_other=True)
        last_us = [-FOREVER_US] * 3
        for gateway, requests, cost, pause_s in steps:
            for _ in range(requests):
                outcome = await gateways.ask(gateway, cost=min(cost, count))
                if outcome.verdict.allowed:
                    last_us[gateway] = clock()()
            await asyncio.sleep(pause_s)
        # A gateway that has refused a key for a while, and asked the store since, does not expect
        # that it has just begun to pass at another.
        lately_us = clock()() - 3 * OFTEN.interval_us
        assume(last_us[asked] >= lately_us or max(last_us) < lately_us)
        last_cost = min(asked_cost, count)
        verdict = (await gateways.ask(asked, cost=last_cost)).verdict
        if not verdict.allowed:
            await asyncio.sleep(verdict.retry_after_us / SECOND_US)
            # What comes back of a sum others estimate, until they have asked about the key.
            there = returns_to if algorithm in FULLY_KNOWN else asked
            assert (await gateways.ask(there, cost=last_cost)).verdict.allowed
        await gateways.aclose()

    run(told())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_once_all_has_been_heard_that_is_what_is_told(algorithm: str) -> None:
    """A client that is refused after the reports gets the store's time."""
    limit = Limit(5, 40 * SECOND_US, 5, algorithm, scope="p/ip")

    async def told() -> None:
        gateways = Gateways(rule(limit, OFTEN), number=2, know_each_other=True)
        for _ in range(5):
            await gateways.ask(0)
        first = last = (await gateways.ask(0)).verdict.retry_after_us
        assert first >= limit.period_us
        for _ in range(10):
            await asyncio.sleep(0.03)
            last = (await gateways.ask(0)).verdict.retry_after_us
        strict = gateways.counts.decide_now(Ask((limit,), ("k",), 1, 0)).retry_after_us
        assert abs(last - strict) < 120_000
        assert last < first
        await gateways.aclose()

    run(told())


def test_a_cost_above_the_burst_never_passes() -> None:
    """With any answer of the store, and in any order of calls."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN))
        for _ in range(12):
            await gateways.ask()
        await asyncio.sleep(0.1)
        assert (await gateways.ask()).verdict.retry_after_us > 0
        assert (await gateways.ask(cost=11)).verdict.retry_after_us == NEVER
        await gateways.aclose()

    run(told())


def test_after_a_restart_the_number_of_the_store_holds() -> None:
    """What passes before the store has answered is all that a restart gives."""

    async def told() -> None:
        before = Gateways(rule(TEN, OFTEN))
        for _ in range(12):
            await before.ask()
        await before.aclose()
        after = Gateways(rule(TEN, OFTEN), counts=before.counts)
        assert (await after.ask()).verdict.allowed
        await asyncio.sleep(0.005)
        assert after.remaining(TEN) == 0
        outcomes = [await after.ask() for _ in range(5)]
        assert not any(each.verdict.allowed for each in outcomes)
        assert all(each.verdict.retry_after_us > 0 for each in outcomes)
        await after.aclose()

    run(told())


def test_a_flood_of_new_keys_is_not_asked_about_one_by_one() -> None:
    """The store gets so many questions in a second, whatever comes; and each report once."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, Eventual(5 * SECOND_US)))
        for second in range(2):
            for number in range(20_000):
                await gateways.ask(key=f"{second}/{number}")
            await asyncio.sleep(1)
        assert gateways.stores[0].asks <= 2 * SECOND_US / 20_000 * 64 + 64
        await asyncio.sleep(10)
        assert gateways.remaining(TEN, "0/0") == 9
        assert gateways.remaining(TEN, "1/19999") == 9
        await gateways.aclose()

    run(told())


def test_reports_leave_one_call_after_the_other() -> None:
    """However many keys there are, the store has few of them to count at a time."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN))
        for number in range(2000):
            await gateways.ask(key=str(number))
        await asyncio.sleep(0.04)
        sizes = gateways.stores[0].sizes
        sizes.clear()
        await asyncio.sleep(0.2)
        assert sum(sizes) >= 2000
        assert max(sizes) <= 2 * REPORTS_A_CALL
        assert gateways.stores[0].most_at_once <= 2
        await gateways.aclose()
        assert gateways.remaining(TEN, "1999") == 9

    run(told())


def test_all_reports_are_made_when_the_gateway_ends() -> None:
    """However many calls that takes."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, Eventual(5 * SECOND_US)))
        for number in range(2000):
            await gateways.ask(key=str(number))
        await gateways.aclose()
        assert all(gateways.remaining(TEN, str(number)) == 9 for number in range(2000))

    run(told())


def test_who_looks_is_told_of_what_was_heard() -> None:
    """What others have used could not pass now."""

    async def told() -> None:
        gateways = Gateways(rule(TEN, OFTEN), number=2)
        for _ in range(6):
            await gateways.ask(0)
        await asyncio.sleep(0.06)
        await gateways.ask(1)
        await asyncio.sleep(0.06)
        assert (await gateways.ask(1, cost=0)).verdict.decisions[0].remaining == 3
        await gateways.aclose()

    run(told())


@pytest.mark.parametrize("algorithm", ["token_bucket", "paced_history"])
@pytest.mark.parametrize("number", [2, 3])
def test_a_small_burst_of_a_long_period_is_not_waited_for_a_whole_period(
    algorithm: str, number: int
) -> None:
    """Of 10,000 a day in bursts of 20 all gateways together can be ahead by minutes, not a day.

    And who obeys, at whichever gateway, passes.
    """
    limit = Limit(10_000, 24 * HOUR_US, 20, algorithm, scope="p/ip")
    most_us = (number + 2) * 20 * limit.interval_ns // 1000 + SECOND_US

    async def told(asked: int, returns_to: int) -> None:
        gateways = Gateways(rule(limit, OFTEN), number=number, know_each_other=True)
        for _ in range(2):
            for _ in range(30):
                for gateway in range(number):
                    await gateways.ask(gateway)
            await asyncio.sleep(0.03)
        verdict = (await gateways.ask(asked)).verdict
        assert not verdict.allowed
        assert verdict.retry_after_us <= most_us
        await asyncio.sleep(verdict.retry_after_us / SECOND_US)
        assert (await gateways.ask(returns_to)).verdict.allowed
        await gateways.aclose()

    for returns_to in range(number if algorithm in FULLY_KNOWN else 1):
        run(told(0, returns_to))
