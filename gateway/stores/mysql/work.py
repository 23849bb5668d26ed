"""The work on an ask while the rows of its keys are locked: the algorithms, on slots."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.limits import ALGORITHMS
from gateway.limits.decision import Verdict, combine
from gateway.stores.base import Ask
from gateway.stores.mysql.rows import RowSlot


def decide(ask: Ask, slots: Sequence[RowSlot], now_us: int) -> Verdict:
    """Spend all limits of an ask or none."""
    if len(slots) == 1:
        # The usual case skips the lists of the general one.
        slot, limit = slots[0], ask.limits[0]
        wait_us = min(limit.max_wait_us, ask.max_wait_us)
        state, decision = ALGORITHMS[limit.algorithm].decide(
            slot.state, now_us, ask.cost, limit, wait_us
        )
        if ask.cost if decision.allowed else slot.state is not None:
            slot.state = state
        return Verdict(decision.allowed, decision.wait_us, decision.retry_after_us, (decision,))
    decisions = []
    after = []
    for limit, cost, slot in zip(ask.limits, ask.each_cost, slots, strict=True):
        wait_us = min(limit.max_wait_us, ask.max_wait_us)
        state, decision = ALGORITHMS[limit.algorithm].decide(
            slot.state, now_us, cost, limit, wait_us
        )
        decisions.append(decision)
        after.append(state)
    verdict = combine(decisions)
    for slot, state, decision in zip(slots, after, decisions, strict=True):
        is_spent = verdict.allowed and ask.cost
        # A refusal's state has nothing spent and is corrected (`token_bucket.spend`).
        if is_spent or (not decision.allowed and slot.state is not None):
            slot.state = state
    return verdict


def give_back(ask: Ask, slots: Sequence[RowSlot], now_us: int, verdict: Verdict) -> bool:
    """Undo what the ask got."""
    for limit, cost, slot, decision in zip(
        ask.limits, ask.each_cost, slots, verdict.decisions, strict=True
    ):
        slot.state = ALGORITHMS[limit.algorithm].give_back(
            slot.state, now_us, cost, limit, decision.receipt
        )
    return True


def renew(ask: Ask, slots: Sequence[RowSlot], now_us: int, verdict: Verdict) -> bool:
    """Keep what the ask holds; return False if any of it is no longer held."""
    all_held = True
    for limit, cost, slot, decision in zip(
        ask.limits, ask.each_cost, slots, verdict.decisions, strict=True
    ):
        if (renew_one := ALGORITHMS[limit.algorithm].renew) is not None:
            slot.state, is_held = renew_one(slot.state, now_us, cost, limit, decision.receipt)
            all_held = all_held and is_held
    return all_held
