"""What every store must do: a suite for ours and for anyone's.

Subclass `StoreContract` in a test module and give it a fixture `store` that yields a started,
ready and empty store. No test waits for a limit to refill: limits are so slow that nothing
refills while a test runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from gateway.errors import StoreError
from gateway.limits.decision import NEVER, Verdict
from gateway.limits.rate import Limit
from gateway.stores.base import Ask, Store

DAY_US = 86_400_000_000
BUCKET = Limit(5, DAY_US, 5, scope="contract/bucket")
LOG = Limit(5, DAY_US, 5, "sliding_window_log", scope="contract/log")
BOTH = (BUCKET, LOG)
FOREVER_US = 10**12


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
    """The tests; `store` is the subclass's."""

    async def test_as_many_as_the_limit_pass(self, store: Store) -> None:
        """The burst passes one by one, the next is refused and told when to come back."""
        for limit in BOTH:
            for left in (4, 3, 2, 1, 0):
                (verdict,) = await decide(store, ask(limit))
                assert verdict[:3] == (True, 0, 0)
                assert verdict.decisions[0].remaining == left
                assert verdict.decisions[0].limit == 5
            (verdict,) = await decide(store, ask(limit))
            assert not verdict.allowed
            assert 0 < verdict.retry_after_us <= DAY_US + 1
            assert verdict.retry_after_us == verdict.decisions[0].retry_after_us
            assert 0 < verdict.decisions[0].reset_us <= DAY_US + 1

    async def test_a_refusal_takes_nothing(self, store: Store) -> None:
        """What is too much now leaves all of it for somebody who needs less."""
        for limit in BOTH:
            assert (await decide(store, ask(limit, cost=4)))[0].allowed
            assert not (await decide(store, ask(limit, cost=2)))[0].allowed
            assert (await decide(store, ask(limit, cost=1)))[0].allowed

    async def test_more_than_the_limit_never_passes(self, store: Store) -> None:
        """And that is said, instead of a time to come back."""
        for limit in BOTH:
            (verdict,) = await decide(store, ask(limit, cost=6))
            assert (verdict.allowed, verdict.retry_after_us) == (False, NEVER)
            assert await remaining(store, limit) == 5

    async def test_a_batch_is_decided_in_order(self, store: Store) -> None:
        """Each ask sees what those before it took."""
        for limit in BOTH:
            verdicts = await decide(store, *[ask(limit) for _ in range(7)])
            assert [verdict.allowed for verdict in verdicts] == [True] * 5 + [False] * 2

    async def test_an_empty_batch_has_no_verdicts(self, store: Store) -> None:
        """Nothing asked, nothing answered."""
        assert await decide(store) == []

    async def test_all_limits_are_spent_or_none(self, store: Store) -> None:
        """One limit that refuses keeps the others from being spent, whatever their order."""
        narrow = replace(BUCKET, burst=1, scope="contract/narrow")
        for limits in ((BUCKET, LOG, narrow), (narrow, LOG, BUCKET)):
            question = Ask(limits, ("all",) * 3, 1, 0)
            verdicts = await decide(store, question, question)
            assert [verdict.allowed for verdict in verdicts] == [limits[0] is BUCKET, False]
        assert await remaining(store, BUCKET, "all") == 4
        assert await remaining(store, LOG, "all") == 4

    async def test_a_look_takes_nothing(self, store: Store) -> None:
        """Cost 0 passes even where nothing is left, and leaves no trace."""
        for limit in BOTH:
            assert await remaining(store, limit) == 5
            await decide(store, ask(limit, cost=5))
            (look,) = await decide(store, ask(limit, cost=0))
            assert (look.allowed, look.wait_us, look.decisions[0].remaining) == (True, 0, 0)

    async def test_keys_and_scopes_are_apart(self, store: Store) -> None:
        """Identities are told apart to the last bit, even those that are no valid text."""
        keys = ("a", "A", "a ", "ä", "a\u0308", "a:b", "{a}", "", "\x00", "a\udcff", "x" * 5000)
        for key in keys:
            assert (await decide(store, ask(BUCKET, key, cost=5)))[0].allowed
        other = replace(BUCKET, scope="contract/other")
        assert (await decide(store, ask(other, "a", cost=5)))[0].allowed
        for key in keys:
            assert not (await decide(store, ask(BUCKET, key)))[0].allowed

    async def test_a_queue_hands_out_turns(self, store: Store) -> None:
        """Who may wait gets a turn of its own; the limit's and the ask's patience both count."""
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

    async def test_what_is_given_back_can_be_taken_again(self, store: Store) -> None:
        """A turn in the queue and a place in the log are free again at once."""
        queue = replace(BUCKET, max_wait_us=DAY_US // 5)
        await decide(store, ask(queue, cost=5))
        for _ in range(3):
            (verdict,) = await decide(store, ask(queue))
            assert verdict.wait_us > 0
            await store.give_back(ask(queue), verdict)
        (verdict,) = await decide(store, ask(LOG, cost=5))
        await store.give_back(ask(LOG, cost=5), verdict)
        assert await remaining(store, LOG) == 5

    async def test_giving_back_never_makes_more_than_there_was(self, store: Store) -> None:
        """Not twice, not for a refusal, not for a key that nobody knows."""
        for limit in BOTH:
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
        for limit in BOTH:
            assert (await decide(store, ask(limit, cost=4)))[0].allowed
            raised = replace(limit, count=10, burst=10)
            assert await remaining(store, raised) == 6 if limit is LOG else 8
            lowered = replace(limit, count=2, burst=2)
            assert not (await decide(store, ask(lowered)))[0].allowed

    async def test_the_wait_under_a_lowered_limit_gets_shorter(self, store: Store) -> None:
        """A key that owes more than the new limit holds is not refused for ever anew."""
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
        limit = replace(BUCKET, count=100, burst=100)
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
            await store.decide([ask(BUCKET)])
        except StoreError as error:
            assert error.reason  # noqa: PT017 - an answer is as good
