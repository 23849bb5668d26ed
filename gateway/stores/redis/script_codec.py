"""The arguments of each algorithm's Lua twin; the files in `lua/algorithms` define their order."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from gateway.limits import ALGORITHMS, fixed_window, paced_history
from gateway.limits.decision import DEBIT
from gateway.limits.rate import NS_PER_US, Limit

LONGEST_US: Final = 2 * 10**15
"""The longest time passed to a script, 63 years: any sum of two of it (a full bucket and as much
that is owed) with the present and a queue stays below 2^53 until the year 2100. A limit that takes
longer to refill counts as one that takes this long."""

LONGEST_QUEUE_US: Final = 10**13
"""The longest wait passed to a script: four months."""

CALENDAR_SLACK_US: Final = 3_600_000_000
"""How far the server's clock may differ from its estimate while the windows stay valid."""


def decide_words(limit: Limit, cost: int, max_wait_us: int) -> tuple[bytes, ...]:
    """Return the arguments for `DECIDE`; calendar windows follow them, see `calendar_words`."""
    tag = _tag(limit)
    if limit.algorithm == "concurrency":
        return tag, _period(limit), b"%d" % limit.count
    queue_us = min(limit.max_wait_us, LONGEST_QUEUE_US)
    wait = b"%d" % min(max_wait_us, queue_us)
    waits = (tag, wait, b"%d" % queue_us)
    ahead = (tag, wait, b"%d" % (queue_us + _owed_us(limit)))
    refused, debt = b"%d" % limit.count_refused, b"%d" % limit.debt
    match limit.algorithm:
        case "token_bucket":
            if max_wait_us == DEBIT:
                # At most a full bucket and a debt, each of which may take the longest time.
                taken = _pair(cost * limit.interval_ns, 2 * LONGEST_US)
            else:
                is_refused = cost > limit.burst
                taken = (b"-1", b"0") if is_refused else _pair(cost * limit.interval_ns)
            return (*ahead, *taken, *_pair(limit.tolerance_ns))
        case "sliding_window_log" | "sliding_window_counter":
            return (*waits, _period(limit), b"%d" % limit.count, refused, debt)
        case "fixed_window":
            # None is longer than a year, except the one that has no end (`limits.throttlex`).
            windows = () if limit.calendar else (b"1", b"%d" % limit.period_us)
            return (*waits, b"%d" % limit.count, refused, debt, *windows)
        case "paced_history":
            burst = b"%d" % limit.burst
            return (*ahead, burst, _window(limit), b"%d" % paced_history.interval_us(limit))
    raise ValueError(f"no script knows the algorithm {limit.algorithm!r}")


class CalendarWords(NamedTuple):
    """Calendar windows, and the server times between which they suffice."""

    words: tuple[bytes, ...]
    early_us: int
    late_us: int


def calendar_words(limit: Limit, server_us: int) -> CalendarWords:
    """Return the windows around the server's present and those that a turn may be in.

    Args:
        limit: a fixed window with a calendar.
        server_us: what the server's clock shows, to within an hour.
    """
    return _calendar_words(limit, server_us // CALENDAR_SLACK_US)


@lru_cache(maxsize=1024)
def _calendar_words(limit: Limit, hour: int) -> CalendarWords:
    now_us = hour * CALENDAR_SLACK_US
    late_us = now_us + 2 * CALENDAR_SLACK_US
    last_turn_us = late_us + min(limit.max_wait_us, LONGEST_QUEUE_US)
    start, end = fixed_window.bounds(max(now_us - CALENDAR_SLACK_US, 0), limit)
    begins = [start, end]
    # The one behind the last is for a turn that comes too late.
    while begins[-2] <= last_turn_us:
        begins.append(fixed_window.bounds(begins[-1], limit)[1])
    words = (b"%d" % len(begins), *[b"%d" % begin for begin in begins])
    return CalendarWords(words, start, late_us)


def give_back_words(limit: Limit, cost: int, receipt: int) -> tuple[bytes, ...]:
    """Return the arguments for `GIVE_BACK`."""
    tag, turn = _tag(limit), b"%d" % receipt
    match limit.algorithm:
        case "token_bucket":
            us, ns = divmod(receipt, NS_PER_US)
            # If there is a queue, what exceeds the limit may be the turn of a waiting request.
            owed = b"%d" % (0 if limit.max_wait_us else _owed_us(limit))
            taken = _pair(cost * limit.interval_ns)
            return (tag, b"%d" % us, b"%d" % ns, *taken, *_pair(limit.tolerance_ns), owed)
        case "sliding_window_counter":
            return tag, _period(limit), turn
        case "fixed_window":
            start, end = fixed_window.bounds(receipt, limit)
            return tag, b"%d" % start, b"%d" % end
        case "paced_history":
            return tag, _window(limit), turn
    return tag, turn


def renew_words(limit: Limit, _cost: int, receipt: int) -> tuple[bytes, ...]:
    """Return the arguments for `RENEW`: only for limits that hold something."""
    return _tag(limit), _period(limit), b"%d" % receipt


def _owed_us(limit: Limit) -> int:
    return min(limit.debt_us, LONGEST_US)


def _tag(limit: Limit) -> bytes:
    return ALGORITHMS[limit.algorithm].tag.encode()


def _period(limit: Limit) -> bytes:
    return b"%d" % min(limit.period_us, LONGEST_US)


def _window(limit: Limit) -> bytes:
    return b"%d" % min(paced_history.window_us(limit), LONGEST_US)


def _pair(time_ns: int, most_us: int = LONGEST_US) -> tuple[bytes, bytes]:
    """Return a time as microseconds and nanoseconds on top, which Lua's numbers hold exactly."""
    us, ns = divmod(min(time_ns, most_us * NS_PER_US), NS_PER_US)
    return b"%d" % us, b"%d" % ns
