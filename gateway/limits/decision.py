"""The result of a limiter for one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

NEVER: Final = -1
"""`retry_after_us` of a request that can never pass: its cost is higher than the limit."""

DEBIT: Final = -1
"""The `max_wait_us` of a debit: its cost has been used already, and is counted regardless of the
limit.

It is always allowed and never given back. The part above the limit is debt, up to `Limit.debt`;
anything beyond that is not recorded. A debit of 0 is a peek that returns how long a debt remains.
Limits on requests in flight have no debits: they treat one like any other request.
"""


class Decision(NamedTuple):
    """The decision of one limit.

    Attributes:
        allowed: whether the request is admitted, now or after `wait_us`. If true, it was counted.
        wait_us: microseconds until its turn; 0 means now. For a debit: until nothing is owed.
        retry_after_us: microseconds until the same request would be allowed, if it was not: the
            first such moment if no other request is made. `NEVER` if there is none.
        limit: how many may pass back-to-back.
        remaining: how many of cost 1 could pass now, after this one.
        reset_us: microseconds until the limit is wholly unused again.
        receipt: what `give_back` needs to undo this decision, and nothing else. For algorithms that
            keep counters instead of single requests, the receipt of a peek (cost 0) gives back from
            the counts of that moment.
    """

    allowed: bool
    wait_us: int
    retry_after_us: int
    limit: int
    remaining: int
    reset_us: int
    receipt: int


class Verdict(NamedTuple):
    """The decision of all limits of one request: either all were spent or none.

    Attributes:
        allowed: whether the request is admitted, now or after `wait_us`.
        wait_us: microseconds until its turn: the longest of its limits' waits.
        retry_after_us: the longest of the waits of the limits that refused; `NEVER` if one
            of them can never let it pass; 0 if it was allowed.
        decisions: one for each limit, in order.
    """

    allowed: bool
    wait_us: int
    retry_after_us: int
    decisions: Sequence[Decision]


def combine(decisions: Sequence[Decision]) -> Verdict:
    """Combine the decisions of several limits on one request.

    The caller keeps the new states of admissions only if the verdict is `allowed`: all or none. The
    state after a refusal has nothing spent and is always kept (`token_bucket.spend`).
    """
    allowed = True
    wait_us = 0
    retry_after_us = 0
    for decision in decisions:
        if not decision.allowed:
            allowed = False
            if decision.retry_after_us == NEVER or retry_after_us == NEVER:
                retry_after_us = NEVER
            elif decision.retry_after_us > retry_after_us:
                retry_after_us = decision.retry_after_us
        elif decision.wait_us > wait_us:
            wait_us = decision.wait_us
    if not allowed:
        wait_us = 0
    return Verdict(allowed, wait_us, retry_after_us, decisions)
