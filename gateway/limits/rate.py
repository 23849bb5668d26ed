"""A limit: how many requests, in which time, by which algorithm.

`parse_limit` in `gateway.limits.notation` makes these from lines such as
`10/s burst 20 per header:X-API-Key`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from gateway.limits.calendar import Calendar, is_zone

NS_PER_US = 1000


@dataclass(frozen=True, slots=True)
class Limit:
    """One compiled limit: everything an algorithm needs, in integers.

    Attributes:
        count: how many requests of cost 1 are allowed ...
        period_us: ... in this many microseconds. With a `calendar` it is the usual length of its
            windows; for concurrency, how long a lease is held without being renewed.
        burst: how many may pass back-to-back (token bucket, paced history). For all other
            algorithms it is always `count`. 0 makes a token bucket that admits nothing.
        algorithm: a name in `gateway.limits.ALGORITHMS`.
        max_wait_us: how long a request may wait instead of being refused; 0 means no queue.
        scope: which limit of which policy this is, such as `pay/header:x-api-key`. It does not
            change with the numbers; stores keep the keys of one scope together.
        count_refused: whether a refused request counts as well (sliding window log and counter,
            fixed window). Such a limit has no queue: requests that wait for their turn and refused
            ones that are counted immediately would overtake each other.
        calendar: `day`, `week` or `month` for the windows of a calendar (fixed window); None for
            windows of `period_us`.
        zone: the time zone of the calendar, as the IANA database names it.
        debt: how far debits (`decision.DEBIT`) may exceed the limit; 0 if there are none. State
            within this distance ahead is not mistaken for that of a clock that went back.
        interval_ns: time that one request of cost 1 occupies, rounded up to a whole nanosecond, so
            that rounding never exceeds the rate.
        tolerance_ns: `burst` intervals; how far the theoretical arrival time may run ahead.
        debt_us: `debt` intervals; how much further it may do so for what is owed.
        furthest_ns: how far it may do so in all, with the queue.
    """

    count: int
    period_us: int
    burst: int
    algorithm: str = "token_bucket"
    max_wait_us: int = 0
    scope: str = ""
    count_refused: bool = False
    calendar: Calendar | None = None
    zone: str = "UTC"
    debt: int = 0
    interval_ns: int = 0
    tolerance_ns: int = 0
    debt_us: int = 0
    furthest_ns: int = 0

    def __post_init__(self) -> None:
        least = 0 if self.algorithm == "token_bucket" else 1
        if min(self.count, self.period_us) < 1 or self.burst < least or self.max_wait_us < 0:
            raise ValueError("count, period and burst of a limit must be at least 1")
        if self.debt < 0:
            raise ValueError("a debt must not be negative")
        if self.count_refused and self.max_wait_us:
            raise ValueError("a limit that counts refused requests cannot have a queue")
        # Reads the zone from disk now, not when the first request is decided.
        if self.calendar and not is_zone(self.zone):
            raise ValueError(f"{self.zone!r} is not a known time zone")
        interval_ns = -(-self.period_us * NS_PER_US // self.count)
        object.__setattr__(self, "interval_ns", interval_ns)
        object.__setattr__(self, "tolerance_ns", interval_ns * self.burst)
        debt_us = -(-interval_ns * self.debt // NS_PER_US)
        object.__setattr__(self, "debt_us", debt_us)
        furthest_ns = self.tolerance_ns + (self.max_wait_us + debt_us) * NS_PER_US
        object.__setattr__(self, "furthest_ns", furthest_ns)

    def __hash__(self) -> int:
        # The fields that distinguish most limits: hashing all would take longer than most
        # decisions.
        return hash((self.scope, self.count, self.period_us))

    def __reduce__(self) -> tuple[type[Limit], tuple[object, ...]]:
        # Copied and sent to other processes by the constructor: a compiled class has no other way.
        return Limit, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    def share(self, parts: int) -> Limit:
        """Return the share of this limit that one of `parts` gateways may spend on its own.

        The sum over all of them never exceeds the limit's rate; each may admit at least one
        request, so if there are more gateways than requests, windows get longer.
        """
        if parts <= 1 or not self.burst:
            return self
        debt = self.debt // parts
        if self.algorithm in ("token_bucket", "paced_history"):
            burst = max(1, self.burst // parts)
            return replace(self, period_us=self.period_us * parts, burst=burst, debt=debt)
        count = self.count // parts
        if not count:
            period_us = -(-self.period_us * parts // self.count)
            return replace(self, count=1, burst=1, period_us=period_us, debt=debt)
        return replace(self, count=count, burst=count, debt=debt)
