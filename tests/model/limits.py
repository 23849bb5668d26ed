"""The limits of the model check, and what a limiter process asks of them."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from gateway.limits.rate import Limit

US: Final = 1_000_000
GATEWAYS: Final = 3
LONGEST_WAIT_US: Final = 300_000
LEASE_US: Final = 1_200_000

# Each is asked for several times as much as it allows.
BUCKET: Final = Limit(12, US, 6, scope="bucket/key")
QUEUED: Final = Limit(10, US, 4, max_wait_us=LONGEST_WAIT_US, scope="queued/key")
LOG: Final = Limit(6, US // 2, 6, "sliding_window_log", scope="log/key")
COUNTER: Final = Limit(8, US * 7 // 10, 8, "sliding_window_counter", scope="counter/key")
FIXED: Final = Limit(6, US // 2, 6, "fixed_window", scope="fixed/key")
PACED: Final = Limit(10, US, 4, "paced_history", max_wait_us=LONGEST_WAIT_US, scope="paced/key")
HELD: Final = Limit(4, LEASE_US, 4, "concurrency", scope="held/key")

LIMITS: Final[dict[str, Limit]] = {
    limit.scope: limit for limit in (BUCKET, QUEUED, LOG, COUNTER, FIXED, PACED, HELD)
}
"""All of them, by scope."""

KEYS: Final = ("ann", "bob", "eve")
"""Identities that live in slots of different servers of a Cluster of three."""


class Question(NamedTuple):
    """One ask: limits with the key of each, and what it costs."""

    limits: tuple[Limit, ...]
    keys: tuple[str, ...]
    cost: int


def draw(dice: random.Random) -> Question:
    """Any ask: of one limit, or of several for one identity or for different ones."""
    number = dice.choice((1, 1, 1, 1, 2, 3))
    limits = tuple(dice.sample(tuple(LIMITS.values()), number))
    if dice.random() < 0.5:
        keys = (dice.choice(KEYS),) * number
    else:
        keys = tuple(dice.choice(KEYS) for _ in range(number))
    return Question(limits, keys, dice.choice((1, 1, 1, 2, 3)))
