"""How exactly a limit is kept among several gateways, and the excess this allows.

`None` means strict: the store decides on every request, and nothing exceeds the limit. The other
two modes decide in the gateway. The excess that leases allow is computed here, for `sluice check
--explain` and for the tests that verify it.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.limits.rate import Limit

PARTS_PER_WHOLE = 100_000
"""Shares are counted in thousandths of a percent."""

MAX_LOG_TOKENS = 1000
"""The most tokens of a sliding window log to lease at a time: the store records each of them."""

NOT_LEASED = ("paced_history", "concurrency")
"""Algorithms that cannot be leased: a pace has no stock to take from, and a request in flight is
one request.
"""


class Leased(NamedTuple):
    """A gateway takes a few tokens of a key at a time and spends them locally.

    Attributes:
        tokens: how many at most; with 0, `parts` applies.
        parts: how many at most, in parts (of `PARTS_PER_WHOLE`) of the burst.
        lifetime_us: how long they are valid; unspent tokens are then returned.
    """

    tokens: int
    parts: int
    lifetime_us: int

    def size(self, limit: Limit) -> int:
        """Return the most tokens of one key a gateway can hold: at least 1, at most the burst."""
        wanted = self.tokens or limit.burst * self.parts // PARTS_PER_WHOLE
        if limit.algorithm == "sliding_window_log":
            wanted = min(wanted, MAX_LOG_TOKENS)
        return max(1, min(wanted, limit.burst))


class Eventual(NamedTuple):
    """A gateway decides from the last known counts, and reports afterwards.

    Each gateway enforces the limit on its own requests. So until the reports have arrived, up to
    the whole limit may pass on each gateway.

    Attributes:
        interval_us: how long admissions are collected before they are reported.
    """

    interval_us: int


Terms = Leased | Eventual


def leased_excess(limit: Limit, terms: Leased, gateways: int | None) -> int:
    """Return the most that a key may exceed its limit by in any window, over all gateways.

    Tokens spent in a window were taken in it, or were taken before and unspent when it began. The
    latter is at most one lease per gateway; and all of it was taken within one lifetime, in which
    the limit itself bounds what can be taken.

    Args:
        limit: the limit.
        terms: the terms of its leases.
        gateways: how many share it; None if that is not known.
    """
    if limit.algorithm == "fixed_window":
        return 0  # Leases of a fixed window end with it.
    periods = -(-terms.lifetime_us // limit.period_us)
    most = {
        "token_bucket": -(-terms.lifetime_us * limit.count // limit.period_us),
        "sliding_window_log": limit.count * periods,
        # It bounds an estimate: up to twice the limit can pass in one period.
        "sliding_window_counter": 2 * limit.count * periods,
    }[limit.algorithm]
    return most if gateways is None else min(most, gateways * terms.size(limit))
