"""How exactly a limit is kept among several gateways, and how much more may pass for it.

`None` stands for strict: the store is asked about every request, and nothing more passes. The
two other terms decide in the gateway. What leases may let through beyond a limit is computed
here, for `sluice check --explain` and for the tests that hold the gateways to it.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.limits.rate import Limit

PARTS_PER_WHOLE = 100_000
"""Shares are counted in thousandths of a percent."""

MAX_LOG_TOKENS = 1000
"""At most so many of a sliding window log at a time: the store writes each of them down."""

NOT_LEASED = ("paced_history", "concurrency")
"""Algorithms of which nothing can be taken in advance: a pace has no use for a stock, and a
request in flight is one request."""


class Leased(NamedTuple):
    """A gateway takes a few tokens of a key at a time, and spends them by itself.

    Attributes:
        tokens: how many at most; 0 lets `parts` speak.
        parts: how many at most, in parts (of `PARTS_PER_WHOLE`) of what may pass at once.
        lifetime_us: how long they may be spent; what is left then is returned.
    """

    tokens: int
    parts: int
    lifetime_us: int

    def size(self, limit: Limit) -> int:
        """How many tokens of one key a gateway has at most: at least 1, never above the burst."""
        wanted = self.tokens or limit.burst * self.parts // PARTS_PER_WHOLE
        if limit.algorithm == "sliding_window_log":
            wanted = min(wanted, MAX_LOG_TOKENS)
        return max(1, min(wanted, limit.burst))


class Eventual(NamedTuple):
    """A gateway decides from what it last heard, and reports afterwards.

    Each gateway holds a key to its limit by itself, whatever it hears. So as many times the
    limit may pass as there are gateways, where they have not heard of each other.

    Attributes:
        interval_us: how long what was let through is gathered before it is reported.
    """

    interval_us: int


Terms = Leased | Eventual


def leased_excess(limit: Limit, terms: Leased, gateways: int | None) -> int:
    """How much more than its limit a key may get in any window, over all gateways.

    What passes in a window was taken in it, or was taken before and was still unspent when it
    began. The latter is at most one lease for each gateway; and all of it was taken within one
    lifetime, in which the limit itself lets only so much be taken.

    Args:
        limit: the limit.
        terms: how it is leased.
        gateways: how many share it; None if that is not known.
    """
    if limit.algorithm == "fixed_window":
        return 0  # Leases of a fixed window end with it.
    periods = -(-terms.lifetime_us // limit.period_us)
    most = {
        "token_bucket": -(-terms.lifetime_us * limit.count // limit.period_us),
        "sliding_window_log": limit.count * periods,
        # Its law is about an estimate: up to twice the limit passes in one period.
        "sliding_window_counter": 2 * limit.count * periods,
    }[limit.algorithm]
    return most if gateways is None else min(most, gateways * terms.size(limit))
