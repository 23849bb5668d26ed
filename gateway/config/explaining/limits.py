"""What one limit admits, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.config.values.types import LimitLine
from gateway.config.values.units import format_duration
from gateway.config.values.words import join, key_word, number
from gateway.limits.notation import UNITS
from gateway.limits.rate import NS_PER_US, Limit
from gateway.limits.throttlex import FOREVER_US

_UNIT_NAMES: Final = {"ms": "millisecond", "s": "second", "m": "minute", "h": "hour", "d": "day"}


def explain_limit(line: LimitLine, *, by_clock: bool = True, is_asked: bool = False) -> str:
    """Describe one limit: `a burst of 20, then one every 100 ms, counted for ...`.

    Args:
        line: the limit.
        by_clock: whether fixed windows begin with the clock, not with their first request.
        is_asked: whether it counts clients of listeners for other systems.
    """
    whom = _per_phrase(line.per)
    if is_asked and line.per == ("ip",):
        whom = "for each identity that a client names"
    if not by_clock and line.limit.algorithm == "fixed_window":
        period = format_duration(line.limit.period_us)
        count = f"at most {number(line.limit.count)} in {period} from the first request"
        return f"{count}, counted {whom}"
    return f"{_COUNTED[line.limit.algorithm](line.limit)}, counted {whom}"


def _bucket(limit: Limit) -> str:
    pace = _pace(limit.count, limit.period_us)
    if limit.burst == 1:
        return f"{pace}, without bursts"
    # A burst when the window begins, and what is refilled within it.
    most = number(limit.burst + limit.count)
    period = _period(limit.period_us)
    return f"a burst of {number(limit.burst)}, then {pace}; at most {most} in any {period}"


def _log(limit: Limit) -> str:
    return f"at most {number(limit.count)} in any {_period(limit.period_us)}"


def _counter(limit: Limit) -> str:
    period = _period(limit.period_us)
    # If all requests of one window come at its end, and those of the next one as they are admitted.
    most = number(2 * limit.count)
    return (
        f"about {number(limit.count)} in any {period}, estimated from two counters; at most {most}"
    )


def _window(limit: Limit) -> str:
    if limit.period_us == FOREVER_US:
        return f"{number(limit.count)} in total, never refilled"
    if limit.calendar:
        zone = limit.zone.replace("_", " ")
        most = f"at most {number(limit.count)} in each calendar {limit.calendar} of {zone}"
        return f"{most}; at most {number(2 * limit.count)} around its end"
    period = _period(limit.period_us)
    most = f"at most {number(limit.count)} in each {period} of the clock (UTC)"
    return f"{most}; at most {number(2 * limit.count)} in any {period}"


def _paced(limit: Limit) -> str:
    window = _period(limit.burst * limit.period_us // limit.count)
    pace = _pace(limit.count, limit.period_us)
    return f"{number(limit.burst)} in any {window}, then {pace}"


def _in_flight(limit: Limit) -> str:
    lease = format_duration(limit.period_us)
    held = f"each counted for up to {lease} if its gateway is lost"
    return f"at most {number(limit.count)} in flight, {held}"


_COUNTED: Final = {
    "token_bucket": _bucket,
    "sliding_window_log": _log,
    "sliding_window_counter": _counter,
    "fixed_window": _window,
    "paced_history": _paced,
    "concurrency": _in_flight,
}
"""How each algorithm counts, in words."""


def _pace(count: int, period_us: int) -> str:
    """Return `one every 100 ms`, or a count per period if that is clearer."""
    interval_us = -(-period_us * NS_PER_US // count) / NS_PER_US
    if count == 1:
        return f"one every {_period(period_us)}"
    if interval_us < 1_000:
        return f"{number(count)} every {_period(period_us)}"
    about = "" if period_us % count == 0 else "about "
    return f"{about}one every {format_duration(round(interval_us))}"


def _period(period_us: int) -> str:
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(period_us, UNITS[unit])
        if count and not rest:
            name = _UNIT_NAMES[unit]
            return name if count == 1 else f"{count} {name}s"
    return format_duration(period_us)


def _per_phrase(per: Sequence[str]) -> str:
    if tuple(per) == ("all",):
        return "for all clients together"
    words = [key_word(word) for word in per]
    if len(words) > 1:
        return f"for each combination of {join(words)}"
    is_named = ":" in per[0] and not per[0].startswith("client_cert")
    return f"for each {'value of ' if is_named else ''}{words[0]}"
