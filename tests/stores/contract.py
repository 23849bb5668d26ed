"""What every store must do: a suite for ours and for anyone's.

Subclass `StoreContract` in a test module and give it a fixture `store` that yields a started,
ready and empty store. No test waits for a limit to refill: limits are so slow that nothing
refills while a test runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

from gateway.base.errors import StoreError
from gateway.limits.decision import DEBIT, NEVER, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, Store, counts_debits

SECOND_US = 1_000_000
DAY_US = 86_400_000_000
BUCKET = Limit(5, DAY_US, 5, scope="contract/bucket")
LOG = Limit(5, DAY_US, 5, "sliding_window_log", scope="contract/log")
MONTH_US = 30 * DAY_US
PATIENT_US = 110 * DAY_US
COUNTER = Limit(5, MONTH_US, 5, "sliding_window_counter", scope="contract/counter")
WINDOW = Limit(5, MONTH_US, 5, "fixed_window", scope="contract/window")
MONTH = Limit(
    5, MONTH_US, 5, "fixed_window", scope="contract/month", calendar="month", zone="Asia/Tokyo"
)
PACED = Limit(5, DAY_US, 5, "paced_history", scope="contract/paced")
IN_FLIGHT = Limit(5, DAY_US, 5, "concurrency", scope="contract/in-flight")
EVERY = (BUCKET, LOG, COUNTER, WINDOW, MONTH, PACED, IN_FLIGHT)
COUNTS_REFUSED = ("sliding_window_log", "sliding_window_counter", "fixed_window")
FOREVER_US = 2**50


def ask(limit: Limit, key: str = "k", cost: int = 1, max_wait_us: int = FOREVER_US) -> Ask:
    """A question about one limit."""
    return Ask((limit,), (key,), cost, max_wait_us)


async def decide(store: Store, *asks: Ask) -> list[Verdict]:
    """One batch."""
    return list(await store.decide(asks))


async def remaining(store: Store, limit: Limit, key: str = "k") -> int:
    """How many more could pass now."""
    (verdict,) = await store.decide([ask(limit, key, cost=0)])
    return verdict.decisions[0].remaining


class StoreContract:
    """The tests; `store` is the subclass's.

    Attributes:
        limits: one of each kind that the store can count.
        plain: one of them, for tests that need no particular kind.
        has_queues: whether somebody may wait for a turn.
        has_costs: whether a request may cost different amounts under its limits.
    """

    limits: ClassVar[tuple[Limit, ...]] = EVERY
    plain: ClassVar[Limit] = BUCKET
    has_queues: ClassVar[bool] = True
    has_costs: ClassVar[bool] = True

    async def test_as_many_as_the_limit_pass(self, store: Store) -> None:
        """The burst passes one by one, the next is refused and told when to come back."""
        for limit in self.limits:
            for left in (4, 3, 2, 1, 0):
                (verdict,) = await decide(store, ask(limit))
                assert verdict[:3] == (True, 0, 0)
                assert verdict.decisions[0].remaining == left
                assert verdict.decisions[0].limit == 5
            (verdict,) = await decide(store, ask(limit))
            assert not verdict.allowed
            assert 0 < verdict.retry_after_us <= 2 * limit.period_us + 1
            assert verdict.retry_after_us == verdict.decisions[0].retry_after_us
            assert 0 < verdict.decisions[0].reset_us <= 2 * limit.period_us + 1

    async def test_a_refusal_takes_nothing(self, store: Store) -> None:
        """What is too much now leaves all of it for somebody who needs less."""
        for limit in self.limits:
            assert (await decide(store, ask(limit, cost=4)))[0].allowed
            assert not (await decide(store, ask(limit, cost=2)))[0].allowed
            assert (await decide(store, ask(limit, cost=1)))[0].allowed

    async def test_more_than_the_limit_never_passes(self, store: Store) -> None:
        """And that is said, instead of a time to come back."""
        for limit in self.limits:
            (verdict,) = await decide(store, ask(limit, cost=6))
            assert (verdict.allowed, verdict.retry_after_us) == (False, NEVER)
            assert await remaining(store, limit) == 5

    async def test_a_batch_is_decided_in_order(self, store: Store) -> None:
        """Each ask sees what those before it took."""
        for limit in self.limits:
            verdicts = await decide(store, *[ask(limit) for _ in range(7)])
            assert [verdict.allowed for verdict in verdicts] == [True] * 5 + [False] * 2

    async def test_an_empty_batch_has_no_verdicts(self, store: Store) -> None:
        """Nothing asked, nothing answered."""
        assert await decide(store) == []

    async def test_all_limits_are_spent_or_none(self, store: Store) -> None:
        """One limit that refuses keeps the others from being spent, whatever their order."""
        narrow = replace(self.plain, count=1, burst=1, scope="contract/narrow")
        for limits in ((*self.limits, narrow), (narrow, *self.limits)):
            question = Ask(limits, ("all",) * len(limits), 1, 0)
            verdicts = await decide(store, question, question)
            assert [verdict.allowed for verdict in verdicts] == [limits[-1] is narrow, False]
        for limit in self.limits:
            assert await remaining(store, limit, "all") == 4

    async def test_each_limit_has_its_own_cost(self, store: Store) -> None:
        """If the store can tell them apart: spent together, given back together, or not at all."""
        if not self.has_costs:
            return
        others = [one for one in self.limits if one is not self.plain][-2:]
        limits = (self.plain, *others)
        dear = Ask(limits, ("d", *["k"] * len(others)), 0, 0).with_costs([3, *[1] * len(others)])
        spent, refused = await decide(store, dear, dear)
        assert (spent.allowed, refused.allowed) == (True, False)
        assert [one.remaining for one in spent.decisions] == [2, *[4] * len(others)]
        assert [one.allowed for one in refused.decisions] == [False, *[True] * len(others)]
        assert await remaining(store, self.plain, "d") == 2
        for limit in others:
            assert await remaining(store, limit) == 4
        await store.give_back(dear, spent)
        assert await remaining(store, self.plain, "d") >= 4
        for limit in others:
            assert await remaining(store, limit) == 5

    async def test_a_look_takes_nothing(self, store: Store) -> None:
        """Cost 0 passes even where nothing is left, and leaves no trace."""
        for limit in self.limits:
            assert await remaining(store, limit) == 5
            await decide(store, ask(limit, cost=5))
            (look,) = await decide(store, ask(limit, cost=0))
            assert (look.allowed, look.wait_us, look.decisions[0].remaining) == (True, 0, 0)

    async def test_keys_and_scopes_are_apart(self, store: Store) -> None:
        """Identities are told apart to the last bit, even those that are no valid text."""
        keys = ("a", "A", "a ", "ä", "a\u0308", "a:b", "{a}", "", "\x00", "a\udcff", "x" * 5000)
        for key in keys:
            assert (await decide(store, ask(self.plain, key, cost=5)))[0].allowed
        other = replace(self.plain, scope="contract/other")
        assert (await decide(store, ask(other, "a", cost=5)))[0].allowed
        for key in keys:
            assert not (await decide(store, ask(self.plain, key)))[0].allowed

    async def test_a_queue_hands_out_turns(self, store: Store) -> None:
        """Who may wait gets a turn of its own; the limit's and the ask's patience both count."""
        if not self.has_queues:
            return
        queue = replace(BUCKET, max_wait_us=2 * DAY_US // 5)
        await decide(store, ask(queue, cost=5))
        question = ask(queue, max_wait_us=DAY_US)
        first, second, third = await decide(store, question, question, question)
        assert (first.allowed, second.allowed, third.allowed) == (True, True, False)
        assert 0 < first.wait_us < second.wait_us <= queue.max_wait_us
        (impatient,) = await decide(store, ask(queue, max_wait_us=0))
        assert not impatient.allowed
        (without_queue,) = await decide(store, ask(BUCKET, max_wait_us=FOREVER_US))
        assert not without_queue.allowed

    async def test_every_queue_keeps_its_order(self, store: Store) -> None:
        """Turns come later and later; who does not wait is refused while others do."""
        for limit in self.limits:
            if limit.algorithm == "concurrency" or not self.has_queues:
                continue
            queue = replace(limit, max_wait_us=PATIENT_US)
            await decide(store, ask(queue, cost=5))
            verdicts = await decide(store, *[ask(queue) for _ in range(7)])
            waits = [verdict.wait_us for verdict in verdicts]
            assert all(verdict.allowed for verdict in verdicts)
            # Waits are from the moment of each decision, so for one moment they get shorter.
            assert all(0 < early < late + SECOND_US for early, late in pairwise(waits))
            assert not (await decide(store, ask(queue, max_wait_us=0)))[0].allowed

    async def test_nobody_waits_for_what_is_in_flight(self, store: Store) -> None:
        """A limit on concurrency refuses at once, however long the ask would wait."""
        if IN_FLIGHT in self.limits:
            queue = replace(IN_FLIGHT, max_wait_us=PATIENT_US)
            verdicts = await decide(store, *[ask(queue) for _ in range(6)])
            assert [verdict.allowed for verdict in verdicts] == [True] * 5 + [False]
            assert {verdict.wait_us for verdict in verdicts} == {0}

    async def test_refused_requests_count_where_they_should(self, store: Store) -> None:
        """What was too much takes what is left; the limits that had room are not spent."""
        for limit in self.limits:
            if limit.algorithm not in COUNTS_REFUSED:
                continue
            counting = replace(limit, count_refused=True)
            wide = replace(counting, count=50, burst=50, scope=f"{limit.scope}/wide")
            both = (counting, wide)
            assert (await decide(store, Ask(both, ("k", "k"), 4, 0)))[0].allowed
            assert not (await decide(store, Ask(both, ("k", "k"), 2, 0)))[0].allowed
            assert not (await decide(store, Ask(both, ("k", "k"), 1, 0)))[0].allowed
            assert await remaining(store, counting) == 0
            assert await remaining(store, wide) == 46

    async def test_what_was_used_already_counts_beyond_the_limit(self, store: Store) -> None:
        """If the store counts debits: up to what may be owed, of a key that is new or known."""
        if not counts_debits(store):
            return
        for limit in self.limits:
            if limit.algorithm == "concurrency":
                continue
            for number, costs in enumerate(((7,), (4, 2), (4, 9**9))):
                key, owing = f"k{number}", replace(limit, debt=5)
                debits = [ask(owing, key, cost, DEBIT) for cost in costs]
                told = await decide(store, *debits)
                (look, plain, more) = await decide(
                    store, ask(owing, key, 0, DEBIT), ask(owing, key, 0), ask(owing, key, 1, 0)
                )
                assert all(verdict.allowed for verdict in (*told, look, plain))
                assert look.decisions[0].remaining == 0
                assert look.wait_us > 0
                assert told[-1].wait_us >= look.wait_us
                assert plain.wait_us == 0
                assert not more.allowed
                assert more.retry_after_us >= look.wait_us - SECOND_US

    async def test_what_is_held_is_kept_by_renewing(self, store: Store) -> None:
        """Until it is released; of other limits nothing is held, and refusals hold nothing."""
        for limit in self.limits:
            (verdict,) = await decide(store, ask(limit, cost=5))
            assert await store.renew(ask(limit, cost=5), verdict)
            (refused,) = await decide(store, ask(limit))
            assert not await store.renew(ask(limit), refused)
            await store.give_back(ask(limit, cost=5), verdict)
            is_held = await store.renew(ask(limit, cost=5), verdict)
            assert is_held == (limit.algorithm != "concurrency")

    async def test_a_lease_that_is_renewed_outlives_its_time(self, store: Store) -> None:
        """Nobody else has the place after the time for which it was taken."""
        if IN_FLIGHT not in self.limits:
            return
        # What has to be in time has a second for it, on any machine and disk.
        day = replace(IN_FLIGHT, count=1, burst=1)
        second = replace(day, period_us=SECOND_US)
        (first,) = await decide(store, ask(second))
        (refused,) = await decide(store, ask(second))
        assert 0 < refused.retry_after_us <= SECOND_US
        assert await store.renew(ask(day), first)
        await asyncio.sleep(1.1)
        assert not (await decide(store, ask(day)))[0].allowed
        assert await store.renew(ask(day), first)

    async def test_what_its_holder_left_is_free_after_a_lease(self, store: Store) -> None:
        """And lost for good to the holder, which takes nothing from the next one."""
        if IN_FLIGHT not in self.limits:
            return
        day = replace(IN_FLIGHT, count=1, burst=1)
        brief = replace(day, period_us=20_000)
        (first,) = await decide(store, ask(brief))
        assert first.allowed
        async with asyncio.timeout(30):
            # Only asking tells that a lease has expired.
            while not (await decide(store, ask(day)))[0].allowed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not await store.renew(ask(brief), first)
        await store.give_back(ask(brief), first)
        assert not (await decide(store, ask(day)))[0].allowed

    async def test_what_is_given_back_can_be_taken_again(self, store: Store) -> None:
        """A turn in the queue and a place in the log are free again at once."""
        queue = replace(BUCKET, max_wait_us=DAY_US // 5)
        if self.has_queues:
            await decide(store, ask(queue, cost=5))
        for _ in range(3 if self.has_queues else 0):
            (verdict,) = await decide(store, ask(queue))
            assert verdict.wait_us > 0
            await store.give_back(ask(queue), verdict)
        for limit in self.limits:
            if limit is not BUCKET:
                (verdict,) = await decide(store, ask(limit, cost=5))
                await store.give_back(ask(limit, cost=5), verdict)
                assert await remaining(store, limit) == 5

    async def test_giving_back_never_makes_more_than_there_was(self, store: Store) -> None:
        """Not twice, not for a refusal, not for a key that nobody knows."""
        for limit in self.limits:
            (verdict,) = await decide(store, ask(limit))
            await store.give_back(ask(limit), verdict)
            await store.give_back(ask(limit), verdict)
            await store.give_back(ask(limit, "unknown"), verdict)
            await decide(store, ask(limit, cost=5))
            (refused,) = await decide(store, ask(limit))
            await store.give_back(ask(limit), refused)
            assert not (await decide(store, ask(limit)))[0].allowed

    async def test_a_changed_limit_keeps_the_counts(self, store: Store) -> None:
        """More is allowed at once when a limit is raised, less when it is lowered."""
        for limit in self.limits:
            assert (await decide(store, ask(limit, cost=4)))[0].allowed
            raised = replace(limit, count=10, burst=10)
            assert await remaining(store, raised) == (2 if limit is BUCKET else 6)
            lowered = replace(limit, count=2, burst=2)
            assert not (await decide(store, ask(lowered)))[0].allowed

    async def test_the_wait_under_a_lowered_limit_gets_shorter(self, store: Store) -> None:
        """A key that owes more than the new limit holds is not refused for ever anew."""
        if BUCKET not in self.limits:
            return
        generous = replace(BUCKET, count=50, burst=50)
        await decide(store, ask(generous, cost=50))
        strict = replace(BUCKET, count=50, burst=1)
        (first,) = await decide(store, ask(strict))
        assert not first.allowed
        for _ in range(1000):
            (second,) = await decide(store, ask(strict))
            if second.retry_after_us < first.retry_after_us:
                return
        raise AssertionError("the time to wait does not pass")

    async def test_no_more_pass_when_all_ask_at_once(self, store: Store) -> None:
        """Concurrent batches admit exactly what one after the other would be admitted."""
        limit = replace(self.plain, count=100, burst=100)
        batches = [store.decide([ask(limit)] * 7) for _ in range(40)]
        verdicts = [verdict for batch in await asyncio.gather(*batches) for verdict in batch]
        assert sum(verdict.allowed for verdict in verdicts) == 100

    async def test_it_is_ready_and_counts_itself(self, store: Store) -> None:
        """A store that answers says so, and a gateway is never alone less than once."""
        assert isinstance(store, Store)
        assert store.is_ready
        assert store.gateways >= 1

    async def test_after_closing_only_store_errors_come(self, store: Store) -> None:
        """Closing twice is harmless; whoever asks late gets an answer or a `StoreError`."""
        await store.aclose()
        await store.aclose()
        try:
            await store.decide([ask(self.plain)])
        except StoreError as error:
            assert error.reason  # noqa: PT017 - an answer is as good
