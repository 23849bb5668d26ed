"""What a limiter says of one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

NEVER: Final = -1
"""`retry_after_us` of a request that can never pass: it costs more than the limit holds."""

DEBIT: Final = -1
"""The `max_wait_us` of a debit: what it costs was used already, and is counted whatever the limit
says.

It is always allowed, and never given back. What exceeds the limit is owed, up to `Limit.debt`; of
more than that nothing is kept. A debit of 0 is a look that tells how long something is owed.
Limits on what goes on at once have none: to them it is a request like any other.
"""


class Decision(NamedTuple):
    """The answer of one limit.

    Attributes:
        allowed: whether the request may go, now or after `wait_us`. If true it was counted.
        wait_us: microseconds until its turn; 0 means now. Of a debit, until nothing is owed.
        retry_after_us: microseconds until the same request would be allowed, if it was
            not: the first such moment if nobody else asks. `NEVER` if there is none.
        limit: how many may pass back-to-back.
        remaining: how many of cost 1 could pass now, after this one.
        reset_us: microseconds until the limit is wholly unused again.
        receipt: what `give_back` needs to undo this decision; of no other use. That of a look
            (cost 0) gives back from what counts at that moment, where the algorithm counts and
            does not keep each request.
    """

    allowed: bool
    wait_us: int
    retry_after_us: int
    limit: int
    remaining: int
    reset_us: int
    receipt: int


class Verdict(NamedTuple):
    """The answer of all limits of one request: all were spent, or none.

    Attributes:
        allowed: whether the request may go, now or after `wait_us`.
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
    """Join the answers of several limits on one request.

    The caller keeps the new states of admissions only if the verdict is `allowed`: all or
    none. The state of a refusal has nothing spent and is kept always (`token_bucket.spend`).
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
