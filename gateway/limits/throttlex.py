"""Limits in ThrottleX's terms: its names, its defaults, and the limits they translate to.

Source: ThrottleX's low-level design (sections 2.3, 3 and 4) and the arithmetic of its two limiters.
`TOKEN_BUCKET` is our token bucket; `SLIDING_WINDOW` is our sliding window log, where only admitted
requests count and a request exactly one window old still counts. Each type has a number that the
other does not use; it is kept but ignored.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from gateway.base.clock import US
from gateway.limits.rate import Limit

TOKEN_BUCKET: Final = "TOKEN_BUCKET"  # noqa: S105 - a type of limiter
SLIDING_WINDOW: Final = "SLIDING_WINDOW"
TYPES: Final = (TOKEN_BUCKET, SLIDING_WINDOW)

FOREVER_US: Final = 2**52
"""A bucket that is never refilled is one window of a clock that began in 1970: until 2112."""
MOST: Final = 1_000_000_000
"""Capacities and rates above this count as this: neither is ever reached."""

_WORD: Final = "throttlex"


class Numbers(NamedTuple):
    """A policy in ThrottleX's form.

    Attributes:
        type: one of `TYPES`.
        capacity: tokens of a full bucket, or requests in a window. 0 admits nothing.
        refill_rate: tokens a second; 0 never refills. Only for buckets.
        window_seconds: the length of a window. Only for windows.
    """

    type: str = TOKEN_BUCKET
    capacity: int = 100
    refill_rate: int | Fraction = 10
    window_seconds: int = 60

    def __str__(self) -> str:
        if self.type == SLIDING_WINDOW:
            return f"{self.type} of {self.capacity} in {self.window_seconds} s"
        rate = self.refill_rate
        if not rate:
            return f"{self.type} of {self.capacity}, never refilled"
        text = str(rate if rate.denominator == 1 else float(rate))
        return f"{self.type} of {self.capacity}, refilled by {text} a second"


DEFAULTS: Final = Numbers()
"""The default policy of a key (design, section 4)."""


def scope_of(policy: str, numbers: Numbers | None = None) -> str:
    """Return the scope of a ThrottleX policy.

    The part after its last slash marks it: in other scopes that is a list of key words.

    Args:
        policy: its name.
        numbers: overrides for some keys. Windows of different lengths then get different scopes,
            because a store may drop all states of one scope after the same time; a store with
            ThrottleX's tables treats them as one.
    """
    if numbers is not None and numbers.type == SLIDING_WINDOW:
        return f"{policy}/{_WORD}:{numbers.window_seconds}s"
    return f"{policy}/{_WORD}"


def is_scope(scope: str) -> bool:
    """Whether a scope is one of `scope_of`: its identities are ThrottleX's keys."""
    return scope.rpartition("/")[2].startswith(_WORD)


def limit_of(numbers: Numbers, scope: str = "") -> Limit:
    """Return the limit that a ThrottleX policy translates to.

    Raises:
        ValueError: a number is negative, a window has no length, or the type is not known.
    """
    kind, capacity, rate, window = numbers
    if kind not in TYPES:
        raise ValueError(f"the type {kind!r} is not one of {', '.join(TYPES)}")
    if capacity < 0:
        raise ValueError(f"a capacity of {capacity} is negative")
    capacity = min(capacity, MOST)
    if kind == SLIDING_WINDOW:
        if window < 1:
            raise ValueError(f"a window of {window} seconds has no length")
        if capacity:
            period_us = min(window * US, FOREVER_US)
            return Limit(capacity, period_us, capacity, "sliding_window_log", scope=scope)
        return Limit(1, US, 0, scope=scope)
    if rate < 0:
        raise ValueError(f"a refill rate of {rate} is negative")
    if not rate and capacity:
        return Limit(capacity, FOREVER_US, capacity, "fixed_window", scope=scope)
    rate = min(rate or 1, MOST)
    return Limit(rate.numerator, rate.denominator * US, capacity, scope=scope)
