"""Leases: tokens that a gateway spends by itself, within a bound that holds in every window."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.limiter.decider import Decider, Outcome
from gateway.limiter.local.leases import MAX_SPENT, LeaseBook, StoreAnswer
from gateway.limits.consistency_mode import MAX_LOG_TOKENS, Leased, leased_excess
from gateway.limits.decision import NEVER, Decision
from gateway.limits.rate import Limit
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask
from gateway.stores.redis.pipe import MAX_CALLS
from gateway.stores.redis.store import RedisStore
from tests.limiter.local.bench import SECOND_US, Gateways, rule
from tests.limiter.local.laws import excess
from tests.servers import RedisServer, until
from tests.virtual_time import clock, run

HOUR_US = 3600 * SECOND_US
LIFETIME_US = 500_000
TENTH = Leased(0, 10_000, LIFETIME_US)
HUNDRED = Limit(100, HOUR_US, 100, scope="p/ip")
ONE = Ask((HUNDRED,), ("k",), 1, 0)


async def _warm_up(gateways: Gateways, gateway: int = 0) -> None:
    """Two requests, so that there is a lease."""
    for _ in range(2):
        assert (await gateways.ask(gateway)).verdict.allowed
    await asyncio.sleep(0.01)


def test_tokens_are_spent_without_asking_the_store() -> None:
    """After the first requests, decisions are immediate, and the store only grants leases."""

    async def told() -> None:
        gateways = Gateways(rule(HUNDRED, TENTH))
        await _warm_up(gateways)
        asked = gateways.stores[0].asks
        before_us = clock()()
        for _ in range(10):
            assert (await gateways.ask()).verdict.allowed
        assert clock()() == before_us
        assert gateways.stores[0].asks == asked
        await gateways.aclose()

    run(told())


def test_what_is_left_is_returned_when_its_time_is_over() -> None:
    """No request waits for tokens of an idle gateway; only spent tokens are missing."""

    async def told() -> None:
        log = Limit(100, HOUR_US, 100, "sliding_window_log", scope="p/ip")
        gateways = Gateways(rule(log, TENTH))
        await _warm_up(gateways)
        assert gateways.remaining(log) == 100 - 2 - 10
        await gateways.ask()
        await asyncio.sleep(0.6)
        assert gateways.remaining(log) == 100 - 3
        await gateways.aclose()

    run(told())


def test_what_is_left_is_returned_when_the_gateway_ends() -> None:
    """An orderly end loses no token, not even of a lease that is just being taken."""

    async def told() -> None:
        log = Limit(100, HOUR_US, 100, "sliding_window_log", scope="p/ip")
        gateways = Gateways(rule(log, TENTH), number=2)
        await _warm_up(gateways)
        for _ in range(2):
            await gateways.ask(1)
        await gateways.aclose()
        assert gateways.remaining(log) == 100 - len(gateways.passed)

    run(told())


def test_a_key_that_is_seen_once_takes_no_lease() -> None:
    """A flood of new keys costs the store what it costs in strict: one question for each."""

    async def told() -> None:
        gateways = Gateways(rule(HUNDRED, TENTH))
        for number in range(50):
            await gateways.ask(key=str(number))
        await asyncio.sleep(0.01)
        assert gateways.stores[0].asks == 50
        await gateways.aclose()

    run(told())


def test_a_refusal_of_the_store_is_remembered() -> None:
    """Until the moment that it named the store is not asked again; then it is."""

    async def told() -> None:
        ten = Limit(10, SECOND_US, 10, scope="p/ip")
        gateways = Gateways(rule(ten, TENTH))
        outcomes = [await gateways.ask() for _ in range(20)]
        outcome = outcomes[-1]
        assert not outcome.verdict.allowed
        asked = gateways.stores[0].asks
        again = await gateways.ask()
        assert gateways.stores[0].asks == asked
        assert 0 < again.verdict.retry_after_us <= 100_000
        assert again.verdict.retry_after_us <= outcome.verdict.retry_after_us
        await asyncio.sleep(again.verdict.retry_after_us / SECOND_US)
        assert (await gateways.ask()).verdict.allowed
        await gateways.aclose()

    run(told())


def test_a_refusal_is_told_as_the_store_said_it() -> None:
    """However briefly a refusal is reused, no retry time is too early."""

    async def told() -> None:
        three = Limit(3, 60 * SECOND_US, 3, scope="p/ip")
        gateways = Gateways(rule(three, TENTH))
        outcomes = []
        for _ in range(3):
            assert (await gateways.ask()).verdict.allowed
        for _ in range(30):
            asked_us = clock()()
            outcome = await gateways.ask()
            outcomes.append((asked_us, outcome.verdict.retry_after_us))
            await asyncio.sleep(0.1)
        first_us = gateways.passed[0]
        for asked_us, retry_after_us in outcomes:
            # Never too early, and later by no more than the way of the answer.
            assert 0 <= asked_us + retry_after_us - (first_us - 1000) - 20 * SECOND_US <= 10_000
        assert gateways.stores[0].asks < 15
        await gateways.aclose()

    run(told())


def test_a_refusal_says_nothing_of_a_request_that_costs_more() -> None:
    """What costs more passes later, and what costs more than the limit holds never does."""

    async def told() -> None:
        three = Limit(3, 60 * SECOND_US, 3, scope="p/ip")
        gateways = Gateways(rule(three, TENTH))
        outcomes = [await gateways.ask() for _ in range(4)]
        assert 0 < outcomes[-1].verdict.retry_after_us <= 20 * SECOND_US
        dearer = await gateways.ask(cost=2)
        assert 39 * SECOND_US < dearer.verdict.retry_after_us <= 40 * SECOND_US
        assert (await gateways.ask(cost=4)).verdict.retry_after_us == NEVER
        await gateways.aclose()

    run(told())


def test_a_refusal_says_nothing_of_a_request_that_would_wait_longer() -> None:
    """A request that would not wait is refused, and for one that would, the store is asked."""

    async def told() -> None:
        queued = Limit(1, SECOND_US, 1, max_wait_us=10 * SECOND_US, scope="p/ip")
        gateways = Gateways(rule(queued, TENTH, queue_max=10))
        await gateways.ask(max_wait_us=0)
        refused = await gateways.ask(max_wait_us=0)
        assert not refused.verdict.allowed
        shorter = await gateways.ask(max_wait_us=0)
        assert shorter.verdict.retry_after_us <= refused.verdict.retry_after_us
        waiting = await gateways.ask(max_wait_us=5 * SECOND_US)
        assert waiting.verdict.allowed
        assert 0 < waiting.verdict.wait_us <= SECOND_US
        await gateways.aclose()

    run(told())


def test_who_looks_is_told_of_what_is_held_here_too() -> None:
    """It could pass now, so it remains."""

    async def told() -> None:
        gateways = Gateways(rule(HUNDRED, TENTH))
        await _warm_up(gateways)
        passed = await gateways.ask()
        looked = await gateways.ask(cost=0)
        assert passed.verdict.decisions[0].remaining == 97
        assert looked.verdict.decisions[0].remaining == 97
        await gateways.aclose()

    run(told())


def test_a_request_of_several_limits_spends_all_or_none() -> None:
    """Tokens of a leased limit are put back if a strict one refuses, including the lease."""

    async def told() -> None:
        strict = Limit(5, HOUR_US, 5, scope="strict/ip")
        log = Limit(100, HOUR_US, 100, "sliding_window_log", scope="leased/ip")
        gateways = Gateways(rule(log, TENTH), rule(strict, None))
        outcomes = [await gateways.ask() for _ in range(30)]
        assert [each.verdict.allowed for each in outcomes] == [True] * 5 + [False] * 25
        passed = outcomes[4]
        assert {each.limit.scope for each in passed.rules} == {"strict/ip", "leased/ip"}
        assert len(passed.verdict.decisions) == 2
        await asyncio.sleep(1)
        assert gateways.remaining(log) == 95
        await gateways.aclose()

    run(told())


def test_what_is_given_back_may_be_spent_again() -> None:
    """A request that is not made after all puts its token back into the lease, once."""

    async def told() -> None:
        log = Limit(20, HOUR_US, 20, "sliding_window_log", scope="p/ip")
        gateways = Gateways(rule(log, TENTH), rule(HUNDRED, None))
        await _warm_up(gateways)
        for _ in range(50):
            outcome = await gateways.ask()
            assert isinstance(outcome, Outcome)
            assert outcome.verdict.allowed
            gateways.deciders[0].give_back(outcome)
            await asyncio.sleep(0.01)
        await gateways.aclose()
        assert gateways.remaining(log) == 18

    run(told())


def test_who_leaves_while_the_store_is_asked_puts_back_what_was_taken_here() -> None:
    """Both parts of the request are undone."""

    async def told() -> None:
        log = Limit(100, HOUR_US, 100, "sliding_window_log", scope="leased/ip")
        other = Limit(100, HOUR_US, 100, "sliding_window_log", scope="strict/ip")
        gateways = Gateways(rule(log, TENTH), rule(other, None))
        await _warm_up(gateways)
        gone = asyncio.create_task(gateways.ask())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0.01)
        await gateways.aclose()
        assert (gateways.remaining(log), gateways.remaining(other)) == (98, 98)

    run(told())


def test_without_its_store_a_gateway_spends_its_lease_and_then_its_share() -> None:
    """The lease is good until its time is over; what follows is the policy's word."""

    async def told() -> None:
        gateways = Gateways(rule(HUNDRED, TENTH))
        await _warm_up(gateways)
        gateways.stores[0].is_down = True
        outcomes = [await gateways.ask() for _ in range(12)]
        assert [each.alone for each in outcomes] == [False] * 10 + [True] * 2
        await gateways.aclose()

    run(told())


def test_a_lease_of_a_fixed_window_ends_with_it() -> None:
    """Tokens of one window are not spent in the next: each admits its limit, no more."""

    async def told() -> None:
        window = Limit(20, SECOND_US, 20, "fixed_window", scope="p/ip")
        gateways = Gateways(rule(window, Leased(10, 0, LIFETIME_US)))
        await asyncio.sleep(0.9)
        await _warm_up(gateways)
        await asyncio.sleep(0.12)
        outcomes = [await gateways.ask() for _ in range(40)]
        assert sum(each.verdict.allowed for each in outcomes) == 20
        await gateways.aclose()

    run(told())


def test_a_lease_of_a_log_is_small() -> None:
    """Each token of it is a line that the store writes: a tenth of a million is too much."""
    million = (1_000_000, HOUR_US, 1_000_000)
    assert TENTH.size(Limit(*million, "sliding_window_log")) == MAX_LOG_TOKENS
    assert Leased(50_000, 0, LIFETIME_US).size(Limit(*million, "sliding_window_log")) == 1000
    assert TENTH.size(Limit(*million)) == 100_000


def test_a_refusal_lists_its_limits_in_the_order_of_the_policy() -> None:
    """Whichever limit refused or was asked: the known ones, in one order."""

    async def told() -> None:
        limits = [
            Limit(50, HOUR_US, 50, "sliding_window_log", scope="first/ip"),
            Limit(7, HOUR_US, 7, scope="second/ip"),
            Limit(30, HOUR_US, 30, "sliding_window_log", scope="third/ip"),
            Limit(20, HOUR_US, 20, "sliding_window_log", scope="fourth/ip"),
        ]
        terms = (Leased(5, 0, 60 * SECOND_US), None, Leased(3, 0, 60 * SECOND_US), None)
        gateways = Gateways(*(rule(limit, each) for limit, each in zip(limits, terms, strict=True)))
        for number in range(12):
            outcome = await gateways.ask()
            scopes = [each.limit.scope for each in outcome.rules]
            assert scopes == [each.scope for each in limits]
            assert [each.limit for each in outcome.verdict.decisions] == [50, 7, 30, 20]
            assert [each.scope for each in outcome.ask.limits] == scopes
            allowed = [each.allowed for each in outcome.verdict.decisions]
            assert allowed == [True, number < 7, True, True]
            await asyncio.sleep(0.01)
        await gateways.aclose()
        assert [gateways.remaining(limit) for limit in limits] == [43, 0, 23, 13]

    run(told())


def test_a_lease_never_grows_above_its_size() -> None:
    """What is put back while it is being replaced goes back to the store instead."""
    now = 0
    limit = Limit(100, HOUR_US, 100, scope="p/ip")
    book = LeaseBook(lambda: now, LIFETIME_US)
    limit_decision = _allowed(90)
    for _ in range(2):
        assert book.spend(limit, "k", TENTH, 1, 0) is None
    book.answered(limit, "k", TENTH, ONE, StoreAnswer(limit_decision, now))
    assert book.wanted(limit, "k") == 10
    book.granted(limit, "k", TENTH, 10, _allowed(80), now)
    spent = [book.spend(limit, "k", TENTH, 1, 0) for _ in range(5)]
    assert book.wanted(limit, "k") == 5
    returned = [book.unspend(each.receipt, 1) for each in spent if each is not None]
    assert [len(each) for each in returned] == [1] * 5
    book.granted(limit, "k", TENTH, 5, _allowed(75), now)
    assert book.held == 10


def test_what_is_spent_is_not_remembered_for_long() -> None:
    """A grant that is spent costs no memory until its time is over, and may yet be put back."""
    limit = Limit(1_000_000, HOUR_US, 1_000_000, scope="p/ip")
    one = Leased(1, 0, 60 * SECOND_US)
    book = LeaseBook(lambda: 0, one.lifetime_us)
    for _ in range(2):
        book.spend(limit, "k", one, 1, 0)
    book.answered(limit, "k", one, ONE, StoreAnswer(_allowed(90), 0))
    receipts = []
    for _ in range(5 * MAX_SPENT):
        assert book.wanted(limit, "k") == 1
        book.granted(limit, "k", one, 1, _allowed(90), 0)
        decision = book.spend(limit, "k", one, 1, 0)
        assert decision is not None
        receipts.append(decision.receipt)
    assert len(book._live) == 0
    assert len(book._spent) <= MAX_SPENT
    assert len(book._expiry) <= 2 * MAX_SPENT
    assert book.unspend(receipts[-1], 1) == []
    assert book.held == 1
    assert book.unspend(receipts[0], 1) == []
    assert book.held == 1
    assert [ask.cost for ask, _ in book.close()] == [1]


def _allowed(remaining: int) -> Decision:
    return Decision(True, 0, 0, 100, remaining, SECOND_US, 1)


LIMITS = st.builds(
    lambda algorithm, count, period_us, burst: Limit(
        count,
        period_us,
        burst if algorithm == "token_bucket" else count,
        algorithm,
        scope="p/ip",
    ),
    st.sampled_from(["token_bucket", "sliding_window_log", "fixed_window"]),
    st.integers(1, 60),
    st.sampled_from([100_000, 700_000, SECOND_US, 5 * SECOND_US]),
    st.integers(1, 80),
)
TERMS = st.builds(Leased, st.integers(1, 30), st.just(0), st.sampled_from([100_000, 400_000]))
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(1, 40),
        st.sampled_from([0.0, 0.001, 0.03, 0.2, 0.9]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60)
@given(LIMITS, TERMS, STEPS, st.lists(st.sampled_from([0.0, 0.001, 0.015]), max_size=20))
def test_the_bound_holds_in_every_window(
    limit: Limit, terms: Leased, steps: list[tuple[int, int, float, int]], delays_s: list[float]
) -> None:
    """Three gateways, any schedule: never more than the limit and the computed excess."""

    async def told() -> list[int]:
        gateways = Gateways(rule(limit, terms), number=3, delays_s=delays_s)
        for gateway, requests, pause_s, cost in steps:
            asked = [gateways.ask(gateway, cost=cost) for _ in range(requests)]
            await asyncio.gather(*asked)
            await asyncio.sleep(pause_s)
        await gateways.aclose()
        return gateways.passed

    assert excess(limit, run(told())) <= leased_excess(limit, terms, 3)


@pytest.mark.parametrize("algorithm", ["token_bucket", "sliding_window_log", "fixed_window"])
def test_under_load_nothing_of_the_limit_is_lost(algorithm: str) -> None:
    """One gateway alone admits at least 98 % of what strict would."""
    limit = Limit(200, SECOND_US, 200, algorithm, scope="p/ip")

    async def passed(terms: Leased | None) -> int:
        gateways = Gateways(rule(limit, terms))
        passed = await gateways.hammer(0, 10, 0.001)
        await gateways.aclose()
        return passed

    assert run(passed(TENTH)) >= 0.98 * run(passed(None))


@pytest.mark.parametrize("algorithm", ["token_bucket", "sliding_window_log", "fixed_window"])
@settings(max_examples=80)
@example(7, 1, [(1, False, 0.0), (2, False, 0.0), (4, True, 0.0), (2, False, 0.0)])
@given(
    st.integers(1, 12),
    st.integers(1, 6),
    st.lists(
        st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from([0.0, 0.0005, 0.002, 0.3])),
        min_size=1,
        max_size=25,
    ),
)
def test_one_gateway_refuses_nobody_whom_the_limit_would_allow(
    algorithm: str, count: int, size: int, steps: list[tuple[int, bool, float]]
) -> None:
    """Its own refills take nothing away: held tokens, and those on their way, can be spent."""
    limit = Limit(count, HOUR_US, count, algorithm, scope="p/ip")
    terms = Leased(size, 0, 10 * SECOND_US)
    strict = Limit(100, HOUR_US, 100, scope="strict/ip")

    async def told() -> None:
        gateways = Gateways(rule(limit, terms), rule(strict, None))
        left = count
        for cost, is_undone, pause_s in steps:
            outcome = await gateways.ask(cost=cost)
            assert outcome.verdict.allowed == (cost <= left)
            left -= cost if outcome.verdict.allowed else 0
            if outcome.verdict.allowed and is_undone and algorithm != "token_bucket":
                gateways.deciders[0].give_back(outcome)
                left += cost
                await asyncio.sleep(0.6)
            await asyncio.sleep(pause_s)
        await gateways.aclose()

    run(told())


@settings(max_examples=80)
@given(st.integers(1, 12), st.integers(1, 6), st.lists(st.integers(1, 8), min_size=1, max_size=8))
def test_of_requests_at_the_same_time_as_many_pass_as_the_limit_allows(
    count: int, size: int, crowds: list[int]
) -> None:
    """Those of cost 1 that are asked for together are refused only when nothing is left."""
    limit = Limit(count, HOUR_US, count, "sliding_window_log", scope="p/ip")

    async def told() -> None:
        gateways = Gateways(rule(limit, Leased(size, 0, 10 * SECOND_US)))
        for crowd in crowds:
            await asyncio.gather(*(gateways.ask() for _ in range(crowd)))
        assert len(gateways.passed) == min(count, sum(crowds))
        await gateways.aclose()

    run(told())


async def test_more_leases_than_a_connection_has_room_for_are_returned(
    redis_server: RedisServer,
) -> None:
    """An orderly end loses no token, however many keys there are."""
    keys = [str(number) for number in range(MAX_CALLS + 500)]
    log = Limit(100, HOUR_US, 100, "sliding_window_log", scope="p/ip")
    leased = rule(log, Leased(10, 0, 60 * SECOND_US))
    metrics = StoreMetrics()

    def store() -> RedisStore:
        return RedisStore(redis_server.url, domain="many", deadline_us=20 * SECOND_US)

    gateway_store = store()
    decider = Decider(
        gateway_store,
        deadline_us=20 * SECOND_US,
        share=1,
        max_waiting=1,
        metrics=metrics,
        terms=[leased.policy.terms] if leased.policy.terms else [],
    )
    await decider.start()
    await until(lambda: gateway_store.is_ready)

    async def ask(key: str) -> None:
        outcome = decider.decide(Ask((log,), (key,), 1, 0), (leased,))
        assert (outcome if isinstance(outcome, Outcome) else await outcome).verdict.allowed

    for _ in range(3):
        for at in range(0, len(keys), 100):
            await asyncio.gather(*(ask(key) for key in keys[at : at + 100]))
    await decider.aclose()
    assert not metrics.errors
    look = store()
    await look.start()
    await until(lambda: look.is_ready)
    for at in range(0, len(keys), 100):
        asks = [Ask((log,), (key,), 0, 0) for key in keys[at : at + 100]]
        verdicts = await look.decide(asks)
        assert {verdict.decisions[0].remaining for verdict in verdicts} == {97}
    await look.aclose()
