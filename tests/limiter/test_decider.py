"""Between requests and a store: batches, deadlines, failures, and what happens alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.base.errors import StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.limiter.decider import (
    Decider,
    Outcome,
    Pending,
    refusing_rule,
    slowest_rule,
)
from gateway.limiter.fallback import CLOSED_RETRY_AFTER_US
from gateway.limiter.plan import Rule
from gateway.limiter.returns import RETURNED_AT_ONCE
from gateway.limits.decision import Verdict
from gateway.limits.rate import Limit
from gateway.observe.metrics import StoreMetrics
from gateway.stores.base import Ask, Store
from gateway.stores.memory.store import MemoryStore
from gateway.stores.scripted import (
    Fail,
    ScriptedAnswer,
    ScriptedCall,
    ScriptedDelay,
    ScriptedHold,
    ScriptedStore,
)
from tests.limiter.local.bench import rule as rule_of
from tests.virtual_time import clock, run

SECOND_US = 1_000_000
DEADLINE_US = 20_000
DEADLINE_S = DEADLINE_US / SECOND_US
FOREVER_US = 2**62
FIVE = Limit(5, 3600 * SECOND_US, 5, scope="p/ip")
OVER = ((FIVE,), ("over",))
DOWN = Fail(StoreUnavailable("refused"))


ALGORITHMS = (
    "token_bucket",
    "sliding_window_log",
    "sliding_window_counter",
    "fixed_window",
    "paced_history",
)


def rule(limit: Limit = FIVE, on_store_error: str = "local", queue_max: int = 0) -> Rule:
    """A rule of a policy of its own, which is strict."""
    return rule_of(limit, None, queue_max, on_store_error)


class Bench:
    """A decider over a scripted store, on virtual time."""

    def __init__(
        self,
        store: Store | None = None,
        share: int | None = None,
        siblings: int = 1,
        deadline_us: int = DEADLINE_US,
    ) -> None:
        self.scripted = ScriptedStore(clock())
        self.metrics = StoreMetrics()
        self.decider = Decider(
            self.scripted if store is None else store,
            deadline_us=deadline_us,
            share=share,
            siblings=siblings,
            max_waiting=10,
            metrics=self.metrics,
            clock=clock(),
        )

    async def used_by_others(self, limit: Limit, times: int) -> None:
        """What other gateways take from the store, of which this one is not told."""
        for verdict in await self.scripted.decide([Ask((limit,), ("k",), 1, 0)] * times):
            assert verdict.allowed

    async def decide(self, *rules: Rule, key: str = "k", cost: int = 1) -> Outcome:
        """One request."""
        rules = rules or (rule(),)
        limits = tuple(each.limit for each in rules)
        asked = Ask(limits, (key,) * len(rules), cost, FOREVER_US)
        outcome = self.decider.decide(asked, rules)
        return outcome if isinstance(outcome, Outcome) else await outcome

    def start(self, *rules: Rule, key: str = "k") -> asyncio.Task[Outcome]:
        """One request, in a task."""
        return asyncio.create_task(self.decide(*rules, key=key))


def story(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """Run on virtual time, and leave nothing behind."""

    async def told() -> None:
        bench = Bench()
        await bench.decider.start()
        assert bench.scripted.is_started
        await test(bench)
        await bench.decider.aclose()
        assert bench.scripted.is_closed
        assert len(bench.decider._tasks) == 0

    run(told())


def test_a_store_in_this_process_is_asked_at_once() -> None:
    """No turn of the loop passes, and giving back is as immediate."""

    async def told() -> None:
        store = MemoryStore(clock=clock())
        bench = Bench(store)
        asked = Ask((FIVE,), ("k",), 5, FOREVER_US)
        outcome = bench.decider.decide(asked, (rule(),))
        assert isinstance(outcome, Outcome)
        assert outcome.verdict.allowed
        assert not outcome.alone
        bench.decider.give_back(outcome)
        assert store.decide_now(asked._replace(cost=0)).decisions[0].remaining == 5
        await bench.decider.aclose()

    run(told())


def test_what_is_asked_in_one_turn_travels_together() -> None:
    """One batch, in order, each with its own verdict; the next turn makes the next batch."""

    async def test(bench: Bench) -> None:
        outcomes = await asyncio.gather(*(bench.start() for _ in range(7)))
        assert [each.verdict.allowed for each in outcomes] == [True] * 5 + [False] * 2
        assert [len(batch) for batch in bench.scripted.asked] == [7]
        await bench.decide(key="other")
        assert [len(batch) for batch in bench.scripted.asked] == [7, 1]
        assert (bench.metrics.batches, bench.metrics.decisions) == (2, 8)
        assert not bench.metrics.errors

    story(test)


def test_batches_do_not_wait_for_each_other() -> None:
    """A slow answer to one batch delays no later request."""

    async def test(bench: Bench) -> None:
        answer = asyncio.Event()
        bench.scripted.then(ScriptedHold(answer))
        first = bench.start()
        await asyncio.sleep(0.001)
        assert (await bench.decide(key="other")).verdict.allowed
        assert not first.done()
        answer.set()
        assert not (await first).alone

    story(test)


@pytest.mark.parametrize(
    ("on_store_error", "expected"),
    [("local", [True] * 5 + [False]), ("open", [True] * 6), ("closed", [False] * 6)],
)
def test_what_a_policy_says_of_a_store_that_is_away(
    on_store_error: str, expected: list[bool]
) -> None:
    """`local` counts alone, `open` lets everything through, `closed` nothing."""

    async def test(bench: Bench) -> None:
        the_rule = rule(on_store_error=on_store_error)
        bench.scripted.then(*[DOWN] * 6)
        outcomes = [await bench.decide(the_rule) for _ in range(6)]
        assert [each.verdict.allowed for each in outcomes] == expected
        assert all(each.alone for each in outcomes)
        closed = on_store_error == "closed"
        assert {each.closed_by for each in outcomes} == ({the_rule.policy} if closed else {None})
        if closed:
            assert outcomes[0].verdict.retry_after_us == CLOSED_RETRY_AFTER_US
        if on_store_error == "local":
            assert refusing_rule(outcomes[5]) is the_rule

    story(test)


def test_policies_that_disagree_about_a_store_that_is_away() -> None:
    """Each has its own word; one that is closed closes the request, and takes nothing."""

    async def test(bench: Bench) -> None:
        local = rule(replace(FIVE, scope="local"))
        open_ = rule(replace(FIVE, burst=1, scope="open"), "open")
        closed = rule(replace(FIVE, scope="closed"), "closed")
        bench.scripted.then(*[DOWN] * 3)
        outcome = await bench.decide(local, open_, closed)
        assert outcome.closed_by is closed.policy
        outcomes = [await bench.decide(local, open_) for _ in range(6)]
        assert [each.verdict.allowed for each in outcomes] == [True] * 5 + [False]
        assert list(outcomes[0].rules) == [local]
        assert refusing_rule(outcomes[5]) is local

    story(test)


@pytest.mark.parametrize(
    ("share", "seen", "siblings", "passed"),
    [(None, 1, 1, 4), (None, 2, 1, 2), (None, 1, 2, 2), (None, 4, 2, 1), (4, 1, 2, 1)],
)
def test_alone_a_gateway_spends_its_share(
    share: int | None, seen: int, siblings: int, passed: int
) -> None:
    """The limit divided by the number of gateways seen or known, or set by the operator."""

    async def told() -> None:
        bench = Bench(share=share, siblings=siblings)
        bench.scripted.gateways = seen
        bench.scripted.then(*[DOWN] * 3)
        four = rule(Limit(4, 3600 * SECOND_US, 4, scope="p/ip"))
        outcomes = [await bench.decide(four) for _ in range(6)]
        assert sum(each.verdict.allowed for each in outcomes) == passed
        await bench.decider.aclose()

    run(told())


def counted(bench: Bench, limit: Limit = FIVE, key: str = "k") -> int:
    """How much of a key the store knows of."""
    look = bench.scripted._counts.decide_limit(limit, key, 0, 0)
    return look.limit - look.remaining


def test_what_passed_alone_is_told_when_the_store_decides_again() -> None:
    """As much as passed of each key; what was given back is not."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(*[DOWN] * 3)
        outcomes = [await bench.decide() for _ in range(4)]
        assert all(each.alone for each in outcomes)
        bench.decider.give_back(outcomes[0])
        other = await bench.decide(key="other")
        assert other.alone
        assert counted(bench) == 0
        await asyncio.sleep(1)
        assert (counted(bench), counted(bench, key="other")) == (3, 1)
        outcomes = [await bench.decide() for _ in range(4)]
        assert [each.verdict.allowed for each in outcomes] == [True, True, False, False]
        assert not any(each.alone for each in outcomes)
        # Undone too late: it stays counted.
        bench.decider.give_back(other)
        await asyncio.sleep(1)
        assert counted(bench, key="other") == 1

    story(test)


def test_one_failure_is_told_of_with_the_next_answer() -> None:
    """Also where the breaker had no reason to open."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(DOWN)
        assert (await bench.decide()).alone
        assert not (await bench.decide(key="other")).alone
        await asyncio.sleep(0.001)
        assert counted(bench) == 1

    story(test)


async def spent_alone(bench: Bench, key: str = "k") -> None:
    """All of a key's limit passes because of one call that fails."""
    bench.scripted.then(DOWN)
    outcomes = await asyncio.gather(*(bench.start(key=key) for _ in range(5)))
    assert all(each.alone and each.verdict.allowed for each in outcomes)


def test_who_asks_first_is_decided_on_with_what_passed_alone() -> None:
    """In the same call, before the question, the store receives what passed without it."""

    async def test(bench: Bench) -> None:
        await spent_alone(bench)
        first = await bench.decide()
        assert not first.alone
        assert not first.verdict.allowed
        assert counted(bench) == 5
        assert (bench.metrics.decisions, bench.metrics.batches) == (1, 1)

    story(test)


def test_what_passed_alone_is_told_without_anybody_asking() -> None:
    """Also where too little failed for a probe; others share the store and need to know."""

    async def test(bench: Bench) -> None:
        await spent_alone(bench)
        await asyncio.sleep(2)
        assert counted(bench) == 5
        asked = len(bench.scripted.asked)
        await asyncio.sleep(10)
        assert len(bench.scripted.asked) == asked

    story(test)


def test_a_store_that_goes_on_failing_is_left_alone_though_nobody_asks() -> None:
    """A failed probe counts like any call; nothing is reported meanwhile, and so nothing lost."""

    async def test(bench: Bench) -> None:
        await spent_alone(bench)
        bench.scripted.then(*[DOWN] * 4)
        await asyncio.sleep(0.6)
        assert not bench.decider.is_ready
        assert all(ask.cost == 0 for batch in bench.scripted.asked[1:] for ask in batch)
        await asyncio.sleep(5)
        assert counted(bench) == 5

    story(test)


def test_a_full_store_costs_one_key_and_not_all_that_are_asked_for() -> None:
    """It answers a probe and counts nothing: one report is tried, the others wait."""

    async def test() -> None:
        store = FullStore(clock())
        bench = Bench(store)
        for _ in range(2):
            await asyncio.gather(*(bench.start(key=str(number)) for number in range(10)))
        store.is_full = False
        await asyncio.sleep(3)
        counts = [
            store._counts.decide_limit(FIVE, str(number), 0, 0).remaining for number in range(10)
        ]
        assert counts.count(3) >= 8
        await bench.decider.aclose()

    run(test())


@pytest.mark.parametrize(
    ("algorithm", "least", "most"),
    [
        ("token_bucket", 2, 3),
        ("sliding_window_log", 3, 3),
        ("sliding_window_counter", 3, 10),
        ("paced_history", 3, 3),
    ],
)
def test_what_matters_no_more_is_not_told(algorithm: str, least: int, most: int) -> None:
    """After the window, a returning client has no more held against it than is due."""

    async def test(bench: Bench) -> None:
        limit = Limit(10, 10 * SECOND_US, 10, algorithm, scope="p/ip")
        the_rule = rule(limit)
        # Three calls; and probes after 0.25 s, 0.75 s, and then every second.
        bench.scripted.then(*[DOWN] * 14)
        for _ in range(8):
            assert (await bench.decide(the_rule)).alone
        await asyncio.sleep(10.5)
        for _ in range(3):
            assert (await bench.decide(the_rule)).alone
        assert counted(bench, limit) == 0
        await asyncio.sleep(2)
        assert not (await bench.decide(rule(replace(FIVE, scope="other")))).alone
        assert least <= counted(bench, limit) <= most

    story(test)


@pytest.mark.parametrize("queue_us", [0, 1800 * SECOND_US])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_told_frees_nothing(algorithm: str, queue_us: int) -> None:
    """A limit that was used up before the outage still is after it, in the same window."""

    async def test(bench: Bench) -> None:
        limit = Limit(40, 3600 * SECOND_US, 40, algorithm, queue_us, scope="p/ip")
        await bench.used_by_others(limit, 40)
        bench.scripted.then(*[DOWN] * 3)
        outcomes = [await bench.decide(rule(limit)) for _ in range(5)]
        assert all(each.alone and each.verdict.allowed for each in outcomes)
        await asyncio.sleep(1)
        verdict = (await bench.decide(rule(limit))).verdict
        assert verdict.wait_us > 0 if verdict.allowed else verdict.retry_after_us > 0
        assert verdict.decisions[0].remaining == 0

    story(test)


@pytest.mark.parametrize("algorithm", ["token_bucket", "paced_history"])
@pytest.mark.parametrize(("count", "burst"), [(1, 20), (3, 7), (60, 20)])
def test_a_report_is_not_refused_for_its_size(algorithm: str, count: int, burst: int) -> None:
    """Of what was used up before and admitted once more, nothing is left."""

    async def test(bench: Bench) -> None:
        limit = Limit(count, 60 * SECOND_US, burst, algorithm, scope="p/ip")
        await bench.used_by_others(limit, burst)
        await asyncio.sleep(burst * 60 / count / 2)
        bench.scripted.then(*[DOWN] * 3)
        outcomes = [await bench.decide(rule(limit)) for _ in range(burst)]
        assert all(each.alone and each.verdict.allowed for each in outcomes)
        await asyncio.sleep(0.3)
        verdict = (await bench.decide(rule(limit))).verdict
        assert not verdict.allowed
        assert verdict.retry_after_us > 0.5 * limit.interval_ns // 1000

    story(test)


def test_turns_that_were_given_alone_are_told() -> None:
    """A request with a turn from the outage is not overtaken after it."""

    async def test(bench: Bench) -> None:
        limit = Limit(10, SECOND_US, 1, max_wait_us=5 * SECOND_US, scope="p/ip")
        bench.scripted.then(*[DOWN] * 3)
        outcomes = [await bench.decide(rule(limit)) for _ in range(40)]
        assert all(each.alone and each.verdict.allowed for each in outcomes)
        await asyncio.sleep(0.3)
        assert (await bench.decide(rule(limit))).verdict.wait_us > 3.5 * SECOND_US

    story(test)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("gateways", [1, 3])
def test_an_outage_is_not_a_fresh_start(algorithm: str, gateways: int) -> None:
    """What the store last reported as used stays used without it, up to a share."""

    async def test(bench: Bench) -> None:
        bench.scripted.gateways = gateways
        limit = Limit(30, 3600 * SECOND_US, 30, algorithm, scope="p/ip")
        await bench.used_by_others(limit, 17)
        await bench.decide(rule(limit))
        bench.scripted.then(*[DOWN] * 99)
        outcomes = [await bench.decide(rule(limit)) for _ in range(30)]
        assert all(each.alone for each in outcomes)
        assert sum(each.verdict.allowed for each in outcomes) == 12 // gateways
        # A key of which the store said nothing has its whole share.
        others = [await bench.decide(rule(limit), key="new") for _ in range(30)]
        assert sum(each.verdict.allowed for each in others) == 30 // gateways

    story(test)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_the_store_said_ages(algorithm: str) -> None:
    """After a period without questions, a share is unused, whatever the last answer was."""

    async def test(bench: Bench) -> None:
        limit = Limit(30, 60 * SECOND_US, 30, algorithm, scope="p/ip")
        for _ in range(30):
            await bench.decide(rule(limit))
        await asyncio.sleep(121)
        bench.scripted.then(*[DOWN] * 99)
        outcomes = [await bench.decide(rule(limit)) for _ in range(31)]
        assert sum(each.verdict.allowed for each in outcomes) == 30

    story(test)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("gateways", [1, 3])
def test_a_link_that_stalls_again_and_again_lets_no_more_through(
    algorithm: str, gateways: int
) -> None:
    """The limit passes, and a request each time of each gateway: shares are rounded."""

    class Link(ScriptedStore):
        """One of several ways to the same counts; nothing comes through for 0.1 s of each 0.6."""

        def __init__(self, shared: Store) -> None:
            super().__init__(clock())
            self.shared = shared

        async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
            await asyncio.sleep(max(0.1 - clock()() / SECOND_US % 0.6, 0))
            return await self.shared.decide(asks)

    async def test(bench: Bench) -> None:
        limit = Limit(100, SECOND_US, 100, algorithm, scope="p/ip")
        benches = [Bench(Link(bench.scripted), share=gateways) for _ in range(gateways)]
        passed = stalls = 0
        for turn in range(6000):
            outcome = await benches[turn % gateways].decide(rule(limit))
            passed += outcome.verdict.allowed
            stalls += outcome.alone
            await asyncio.sleep(0.002)
        assert stalls > 50
        seconds = (clock()() - 1_000_000_000) / SECOND_US
        outages = seconds / 0.6
        assert passed <= 100 + 100 * seconds * 1.05 + gateways * outages
        for each in benches:
            await each.decider.aclose()

    story(test)


def test_a_store_that_comes_and_goes_gives_no_fresh_shares() -> None:
    """What passed alone also counts in the next outage, and is reported once."""

    async def test(bench: Bench) -> None:
        bench.scripted.gateways = 5
        passed = 0
        for _ in range(6):
            bench.scripted.then(*[DOWN] * 3)
            outcomes = [await bench.decide() for _ in range(5)]
            passed += sum(each.verdict.allowed for each in outcomes)
            await asyncio.sleep(2)
        assert passed == 1
        assert counted(bench) == 1

    story(test)


@pytest.mark.parametrize("algorithm", ["sliding_window_log", "paced_history"])
def test_what_the_store_said_does_not_replace_what_passed_alone(algorithm: str) -> None:
    """What passed alone counts for its whole window, whatever the store said in between."""

    async def test(bench: Bench) -> None:
        bench.scripted.gateways = 3
        six = Limit(6, 60 * SECOND_US, 6, algorithm, scope="p/ip")
        bench.scripted.then(*[DOWN] * 3)
        outcomes = [await bench.decide(rule(six)) for _ in range(3)]
        assert [each.verdict.allowed for each in outcomes] == [True, True, False]
        await asyncio.sleep(5)
        await bench.used_by_others(six, 4)
        said = await bench.decide(rule(six))
        assert not said.alone
        assert not said.verdict.allowed
        # The store names no times: the share's two are assumed to be 30 seconds apart.
        for seconds in (5, 35):
            await asyncio.sleep(seconds)
            bench.scripted.then(*[DOWN] * 3)
            again = await bench.decide(rule(six))
            assert again.alone
            assert not again.verdict.allowed

    story(test)


def test_what_is_in_flight_is_not_told() -> None:
    """A request that was admitted alone ends alone: the store could not release it."""

    async def test(bench: Bench) -> None:
        limit = Limit(5, SECOND_US, 5, "concurrency", scope="p/ip")
        bench.scripted.then(*[DOWN] * 3)
        outcomes = [await bench.decide(rule(limit)) for _ in range(3)]
        await asyncio.sleep(1)
        assert counted(bench, limit) == 0
        bench.decider.give_back(outcomes[0])

    story(test)


def test_reports_that_fail_are_not_repeated() -> None:
    """They may have been counted; that they failed is a failure like any."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(DOWN, ScriptedDelay(0), DOWN)
        assert (await bench.decide()).alone
        assert not (await bench.decide(key="other")).alone
        await asyncio.sleep(0.5)
        assert counted(bench) == 0
        assert len(bench.scripted.asked) == 3
        assert sum(bench.metrics.errors.values()) == 2

    story(test)


class Sharded(ScriptedStore):
    """A store of several servers, one for each key, of which one hangs."""

    def shard(self, ask: Ask) -> str:
        """The server of an ask."""
        return ask.keys[0]

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Only one that is not `lost` answers."""
        if asks[0].keys[0] == "lost":
            self.asked.append(tuple(asks))
            await asyncio.sleep(1000)
        return await super().decide(asks)


def test_a_server_that_is_lost_concerns_its_own_keys_only() -> None:
    """Shards are asked apart, each under its own deadline and breaker; others do not wait."""

    async def told() -> None:
        store = Sharded(clock())
        bench = Bench(store)
        for number in range(1, 11):
            begin_us = clock()()
            lost, first, second = (bench.start(key=key) for key in ("lost", "k", "k"))
            assert not (await first).alone
            assert not (await second).alone
            assert clock()() == begin_us
            assert (await lost).alone
            assert clock()() - begin_us == (DEADLINE_US if number <= 3 else 0)
        batches = [[ask.keys[0] for ask in batch] for batch in store.asked]
        assert batches.count(["lost"]) == 3
        assert batches.count(["k", "k"]) == 10
        assert bench.metrics.errors == {"timeout": 3, "breaker_open": 7}
        bench.decider._refresh_metrics()
        assert bench.metrics.breaker == "open"
        await bench.decider.aclose()

    run(told())


def test_a_late_answer_counts_as_none() -> None:
    """At the deadline the policy speaks; the call is given up."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(ScriptedDelay(10 * DEADLINE_S))
        start = clock()()
        outcome = await bench.decide()
        assert outcome.alone
        assert DEADLINE_US <= clock()() - start <= DEADLINE_US * 1.1
        await asyncio.sleep(0)
        assert bench.scripted.cancelled == 1
        assert bench.metrics.errors == {"timeout": 1}
        assert bench.metrics.batches == 0

    story(test)


def test_an_answer_in_time_is_the_answer() -> None:
    """Just before the deadline is not late."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(ScriptedDelay(0.9 * DEADLINE_S))
        assert not (await bench.decide()).alone

    story(test)


def test_a_stall_of_this_process_is_not_the_stores_fault() -> None:
    """If the loop itself was late, the store gets its deadline once more, and no blame."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(ScriptedDelay(DEADLINE_S / 2))
        asked = bench.start()
        await asyncio.sleep(0.001)
        clock().advance(seconds=10 * DEADLINE_S)  # something blocked the loop
        assert not (await asked).alone
        assert not bench.metrics.errors

    story(test)


def test_a_stall_does_not_excuse_a_store_for_ever() -> None:
    """A store that misses its time while the loop runs again is late."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(ScriptedCall(lambda: clock().advance(seconds=0.5)), ScriptedDelay(1000))
        assert not (await bench.decide()).alone
        asked = bench.start()
        await asyncio.sleep(0.001)
        clock().advance(seconds=10 * DEADLINE_S)
        start = clock()()
        assert (await asked).alone
        assert clock()() - start <= DEADLINE_US * 1.1

    story(test)


@pytest.mark.parametrize("stall_us", [DEADLINE_US // 4, DEADLINE_US])
def test_stalls_that_repeat_are_not_the_stores_fault(stall_us: int) -> None:
    """With a busy processor the loop is late again and again: that is not the store's time."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(ScriptedDelay(DEADLINE_S * 0.9 + 4 * stall_us / SECOND_US))
        asked = bench.start()
        for _ in range(4):
            await asyncio.sleep(DEADLINE_S * 0.2)
            clock().advance(us=stall_us)
        assert not (await asked).alone
        assert not bench.metrics.errors

    story(test)


@pytest.mark.parametrize("stall_us", [DEADLINE_US // 4, DEADLINE_US])
def test_however_often_a_loop_stalls_the_wait_for_a_store_ends(stall_us: int) -> None:
    """A loop that is late at every look gives up after three times as many as usual."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(ScriptedDelay(1000))
        asked = bench.start()
        stalls = 0
        while not asked.done():
            await asyncio.sleep(DEADLINE_S / 100)
            clock().advance(us=stall_us)
            stalls += 1
        assert (await asked).alone
        assert stalls <= 3 * 4 * 2

    story(test)


def test_a_store_that_got_to_a_question_too_late_is_asked_again() -> None:
    """It has spent nothing; whoever asked is still waiting, since this process was late too."""

    async def test(bench: Bench) -> None:
        late = Fail(StoreTimeout("too late", "late"))
        bench.scripted.then(late, late)
        assert not (await bench.decide()).alone
        assert [len(batch) for batch in bench.scripted.asked] == [1, 1, 1]
        bench.scripted.then(late, late, late)
        assert (await bench.decide()).alone
        assert bench.metrics.errors == {"late": 1}

    story(test)


def test_a_dead_store_is_not_asked_every_time() -> None:
    """After three failures no request waits for it; probes that spend nothing find it again."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(*[DOWN] * 5)
        open_ = rule(on_store_error="open")
        for _ in range(10):
            assert (await bench.decide(open_)).alone
        assert len(bench.scripted.asked) == 3
        assert bench.metrics.errors == {"unavailable": 3, "breaker_open": 7}
        ready = [bench.decider.is_ready]
        await asyncio.sleep(0.5)
        assert len(bench.scripted.asked) > 3
        assert all(each.cost == 0 for batch in bench.scripted.asked[3:] for each in batch)
        assert (await bench.decide(open_)).alone
        await asyncio.sleep(2)
        assert [*ready, bench.decider.is_ready] == [False, True]
        assert not (await bench.decide(open_)).alone

    story(test)


class FullStore(ScriptedStore):
    """It can look, and refuse, and not count; as a Redis that is over its `maxmemory`."""

    is_full = True

    async def decide(self, asks: Sequence[Ask]) -> Sequence[Verdict]:
        """Fail for whoever takes something; a request of `OVER` is refused."""
        if self.is_full and any(ask.cost and (ask.limits, ask.keys) != OVER for ask in asks):
            self.then(Fail(StoreReplyError("OOM")))
        return await super().decide(asks)


def test_a_store_that_answers_nothing_but_probes_is_said_to_be_lost_only_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One call per second checks whether it can count again, and the log reports when it can."""

    def told() -> list[str]:
        return [record.getMessage()[:21] for record in caplog.records]

    async def test() -> None:
        store = FullStore(clock())
        bench = Bench(store)
        for _ in range(600):
            assert (await bench.decide()).alone
            await asyncio.sleep(0.1)
        failed = sum(any(ask.cost for ask in batch) for batch in store.asked)
        assert failed <= 70
        assert len(told()) <= 3
        store.is_full = False
        caplog.clear()
        await asyncio.sleep(2)
        assert told() == []
        assert not (await bench.decide()).alone
        assert told() == ["store available again"]
        assert bench.metrics.errors["reply"] >= failed
        await bench.decider.aclose()

    run(test())


def test_a_full_store_that_refuses_is_full_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """A request over the limit is refused without a write: no sign that it counts again."""

    async def test() -> None:
        store = FullStore(clock())
        bench = Bench(store)
        store.is_full = False
        for _ in range(5):
            await bench.decide(key="over")
        store.is_full = True
        for number in range(600):
            await bench.decide(key="over")
            for turn in range(4):
                assert (await bench.decide(key=f"{number}.{turn}")).alone
            await asyncio.sleep(0.1)
        lines = [record.getMessage()[:20] for record in caplog.records]
        assert lines == ["store unavailable (r", "store available agai", "store unavailable (r"]
        await bench.decider.aclose()

    run(test())


def test_what_passed_alone_is_told_once_a_full_store_has_room() -> None:
    """This needs no request, and few reports are lost while it has no room."""

    async def test() -> None:
        store = FullStore(clock())
        bench = Bench(store)
        for number in range(300):
            assert (await bench.decide(key=str(number))).alone
            await asyncio.sleep(0.02)
        store.is_full = False
        asked = len(store.asked)
        await asyncio.sleep(3)
        told = {ask.keys[0] for batch in store.asked[asked:] for ask in batch if ask.cost}
        assert len(told) >= 285
        assert not (await bench.decide()).alone
        await bench.decider.aclose()

    run(test())


def test_a_call_that_fails_late_does_not_keep_a_store_from_being_found() -> None:
    """It was made before the outage and fails while the probe is in flight and succeeds."""

    async def told() -> None:
        bench = Bench(deadline_us=SECOND_US)
        bench.scripted.then(ScriptedDelay(0.26, DOWN), DOWN, DOWN, DOWN, ScriptedDelay(0.05))
        late = bench.start()
        await asyncio.sleep(0.001)
        for _ in range(3):
            assert (await bench.decide()).alone
        assert (await late).alone
        await asyncio.sleep(2)
        assert not (await bench.decide()).alone
        await bench.decider.aclose()

    run(told())


def test_a_store_that_is_not_there_is_missed_before_anybody_asks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Soon after the start it is not ready and the log says why; later, that it is back."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(*[DOWN] * 3)
        await asyncio.sleep(1.1)
        ready = [bench.decider.is_ready]
        await asyncio.sleep(1)
        assert [*ready, bench.decider.is_ready] == [False, True]

    story(test)
    lost, found = (record.getMessage() for record in caplog.records)
    assert "store unavailable (unavailable" in lost
    assert "store available again" in found


def test_an_answer_resets_the_count_of_failures() -> None:
    """Two failures now and then open nothing."""

    async def test(bench: Bench) -> None:
        for _ in range(5):
            bench.scripted.then(DOWN, DOWN)
            for _ in range(3):
                await bench.decide(rule(on_store_error="open"))
        assert len(bench.scripted.asked) == 15

    story(test)


@pytest.mark.parametrize(
    "step",
    [
        Fail(StoreReplyError("nonsense")),
        ScriptedAnswer(()),
        ScriptedAnswer((Verdict(True, 0, 0, ()),) * 2),
        Fail(RuntimeError("a bug of the store")),
    ],
)
def test_a_store_that_breaks_its_contract_fails_like_any_other(
    step: ScriptedAnswer | Fail, caplog: pytest.LogCaptureFixture
) -> None:
    """Too few verdicts, too many, a forbidden error: no request waits forever."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(step)
        outcome = await bench.decide()
        assert outcome.alone
        assert outcome.verdict.allowed
        assert sum(bench.metrics.errors.values()) == 1

    with caplog.at_level(logging.ERROR):
        story(test)
    is_bug = isinstance(step, Fail) and isinstance(step.error, RuntimeError)
    assert bool(caplog.records) == is_bug


def test_who_leaves_while_the_store_is_asked_gives_back() -> None:
    """What was counted for him is undone; the others of the batch are not held up by that."""

    async def test(bench: Bench) -> None:
        answer, undone = asyncio.Event(), asyncio.Event()
        bench.scripted.then(ScriptedHold(answer))
        bench.scripted.then_give_back(ScriptedHold(undone))
        gone, stays = bench.start(), bench.start()
        await asyncio.sleep(0.001)
        gone.cancel()
        answer.set()
        assert (await stays).verdict.allowed
        assert gone.cancelled()
        await asyncio.sleep(0)
        ((asked, verdict),) = bench.scripted.given_back
        assert asked.keys == ("k",)
        assert verdict.decisions[0].remaining == 4
        undone.set()

    story(test)


def test_who_was_refused_has_nothing_to_give_back() -> None:
    """Neither has a request whose call failed."""

    async def test(bench: Bench) -> None:
        await bench.decide(cost=5)
        answer = asyncio.Event()
        bench.scripted.then(ScriptedHold(answer), ScriptedDelay(0.001, DOWN))
        for _ in range(2):
            gone = bench.start()
            await asyncio.sleep(0.0005)
            gone.cancel()
            answer.set()
            await asyncio.sleep(0.01)
        assert bench.scripted.given_back == []

    story(test)


@pytest.mark.parametrize("step", [DOWN, ScriptedDelay(10 * DEADLINE_S)])
def test_a_turn_that_cannot_be_given_back_stays_taken(step: Fail | ScriptedDelay) -> None:
    """Too few may pass then, never too many; only a counter shows it."""

    async def test(bench: Bench) -> None:
        bench.scripted.then_give_back(step)
        bench.decider.give_back(await bench.decide())
        await asyncio.sleep(2 * DEADLINE_S)
        assert bench.metrics.errors == {"give_back": 1}
        look = await bench.decide(cost=0)
        assert look.verdict.decisions[0].remaining == 4

    story(test)


def test_much_that_is_given_back_goes_in_turns() -> None:
    """They do not fill a connection, none is lost, and unreported ones are counted."""

    async def test(bench: Bench) -> None:
        many = Limit(1000, 3600 * SECOND_US, 1000, "sliding_window_log", scope="p/ip")
        outcomes = await asyncio.gather(*(bench.decide(rule(many)) for _ in range(500)))
        held = asyncio.Event()
        bench.scripted.then_give_back(*[ScriptedHold(held)] * RETURNED_AT_ONCE)
        for outcome in outcomes:
            bench.decider.give_back(outcome)
        await asyncio.sleep(0.001)
        assert len(bench.scripted.given_back) == RETURNED_AT_ONCE
        held.set()
        await asyncio.sleep(0.001)
        assert len(bench.scripted.given_back) == 500
        look = await bench.decide(rule(many), cost=0)
        assert look.verdict.decisions[0].remaining == 1000
        assert not bench.metrics.errors

    story(test)


def test_leaving_does_not_wait_for_all_that_is_given_back() -> None:
    """What there was no time for is counted as well."""

    async def told() -> None:
        bench = Bench()
        outcomes = [await bench.decide(key=str(number)) for number in range(RETURNED_AT_ONCE * 150)]
        bench.scripted.then_give_back(*[ScriptedDelay(0.015)] * len(outcomes))
        for outcome in outcomes:
            bench.decider.give_back(outcome)
        before_us = clock()()
        await bench.decider.aclose()
        assert clock()() - before_us < 3 * SECOND_US
        lost = bench.metrics.errors["give_back"]
        assert lost > 0
        # Those on their way when time was up may have arrived.
        assert lost + len(bench.scripted.given_back) - RETURNED_AT_ONCE == len(outcomes)

    run(told())


def test_what_was_decided_alone_is_given_back_alone() -> None:
    """The store receives nothing about decisions that it did not make."""

    async def test(bench: Bench) -> None:
        bench.scripted.then(*[DOWN] * 3)
        first = await bench.decide()
        bench.decider.give_back(first)
        await asyncio.sleep(0)
        assert bench.scripted.given_back == []

    story(test)


def test_the_last_answers_are_awaited_when_it_ends() -> None:
    """Closing waits for calls in flight, for a moment at most, and then closes the store."""

    async def told() -> None:
        bench = Bench()
        bench.scripted.then(ScriptedDelay(DEADLINE_S / 2))
        asked = bench.start()
        await asyncio.sleep(0.001)
        await bench.decider.aclose()
        assert not (await asked).alone
        assert bench.scripted.is_closed

    run(told())


def test_waiting_for_a_turn_and_giving_it_up() -> None:
    """The slowest rule's queue is the one that counts; leaving gives the turn to the store."""

    async def test(bench: Bench) -> None:
        queue = rule(Limit(10, SECOND_US, 1, max_wait_us=FOREVER_US, scope="q"), queue_max=2)
        await bench.decide(queue)
        outcomes = [await bench.decide(rule(), queue) for _ in range(3)]
        assert {slowest_rule(each) for each in outcomes} == {queue}
        start = clock()()
        first, second = (
            asyncio.create_task(bench.decider.wait_turn(each)) for each in outcomes[:2]
        )
        await asyncio.sleep(0.001)
        assert not bench.decider.may_wait(outcomes[2])
        second.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await second
        assert bench.decider.may_wait(outcomes[2])
        await first
        assert 0 <= clock()() - start - 100_000 <= 2_000
        assert len(bench.scripted.given_back) == 1
        assert len(bench.decider.waiting) == 0

    story(test)


def test_turns_of_the_store_and_of_a_gateway_alone_are_not_exchanged() -> None:
    """A leaving request gives its turn back to the side that assigned it, and to no other."""

    async def test(bench: Bench) -> None:
        queue = rule(Limit(10, SECOND_US, 1, max_wait_us=FOREVER_US, scope="q"), queue_max=5)
        await bench.decide(queue)
        by_store = await bench.decide(queue)
        await asyncio.sleep(0.03)
        bench.scripted.then(DOWN, DOWN)
        await bench.decide(queue)
        begin_us = clock()()
        alone = await bench.decide(queue)
        assert (by_store.alone, alone.alone) == (False, True)
        leaving, staying = (
            asyncio.create_task(bench.decider.wait_turn(each)) for each in (by_store, alone)
        )
        await asyncio.sleep(0.001)
        leaving.cancel()
        await staying
        assert clock()() - begin_us >= alone.verdict.wait_us >= 100_000
        assert bench.scripted.given_back == [(by_store.ask, by_store.verdict)]

    story(test)


def test_an_outcome_can_be_told_instead_of_awaited() -> None:
    """Once, before or after it is there; and not to a caller that has given up."""

    async def test(bench: Bench) -> None:
        told: list[Outcome] = []
        asked = Ask((FIVE,), ("k",), 1, FOREVER_US)
        first, second = (bench.decider.decide(asked, (rule(),)) for _ in range(2))
        assert isinstance(first, Pending)
        assert isinstance(second, Pending)
        first.then(told.append)
        second.then(told.append)
        second.abandon()
        await asyncio.sleep(0.001)
        assert [each.verdict.decisions[0].remaining for each in told] == [4]
        first.then(told.append)
        assert told == [told[0]] * 2
        assert len(bench.scripted.given_back) == 1

    story(test)


def test_readiness_is_the_stores() -> None:
    """Whether the store would answer is what the gateway reports."""

    async def test(bench: Bench) -> None:
        assert bench.decider.is_ready
        bench.scripted.is_ready = False
        assert not bench.decider.is_ready

    story(test)


def test_every_reason_of_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The first may only report a missing connection; a probe finds the reason."""

    async def test(bench: Bench) -> None:
        unknown = Fail(StoreUnavailable("not connected yet", "not_connected"))
        why = Fail(StoreUnavailable("no TLS there", "connect"))
        bench.scripted.then(*[unknown] * 3, why, unknown, why)
        for _ in range(3):
            await bench.decide()
        await asyncio.sleep(5)
        assert not (await bench.decide()).alone

    story(test)
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(" (")[2].partition(")")[0] for line in told] == [
        "not_connected: not connected yet",
        "connect: no TLS there",
        "",
    ]
