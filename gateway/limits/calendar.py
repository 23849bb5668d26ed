"""Days, weeks and months of a time zone, as intervals of time.

A day begins with the first moment at which the clocks of its zone show its date or a later one, and
ends where the next begins. So it has 23 or 25 hours when clocks change (or 23:30 on Lord Howe
Island), begins at 01:00 where midnight is skipped, and has no length if the zone skipped the whole
day, as Samoa did on 30 December 2011. Days, weeks (ISO 8601, from Monday) and months each cover all
time, without gap or overlap.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Final, Literal
from zoneinfo import ZoneInfo, available_timezones

Calendar = Literal["day", "week", "month"]

CALENDARS: Final[dict[Calendar, int]] = {
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
    "month": 30 * 86_400_000_000,
}
"""What a limit can count by, and its usual length in microseconds."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)


def window(now_us: int, calendar: Calendar, zone: str) -> tuple[int, int]:
    """Return the day, week or month of `zone` that contains a moment.

    Args:
        now_us: microseconds since 1970 (UTC).
        calendar: `day`, `week` or `month`.
        zone: a name of the IANA time zone database, such as `Europe/Berlin`.

    Returns:
        Its first microsecond, and the first one after it.

    Raises:
        ZoneInfoNotFoundError: there is no such zone.
    """
    moment = (_EPOCH + timedelta(microseconds=now_us)).astimezone(_zone(zone))
    day = moment.toordinal()
    start, end = _span(calendar, zone, day)
    while now_us >= end:
        # Clocks were set back across midnight and show yesterday's date again.
        day += 1
        start, end = _span(calendar, zone, day)
    return start, end


def is_zone(name: str) -> bool:
    """Return whether a time zone of this name exists."""
    try:
        _zone(name)
    except (ValueError, KeyError, OSError):
        # Not a name, not in the database, or a folder such as `Europe`.
        return False
    return True


def zones() -> frozenset[str]:
    """Return the names of all time zones; empty if there is no database."""
    return frozenset(available_timezones())


_zone = lru_cache(maxsize=1024)(ZoneInfo)


@lru_cache(maxsize=4096)
def _span(calendar: Calendar, zone: str, day: int) -> tuple[int, int]:
    """Return the first day of the period of a day (an ordinal), and of the next period."""
    first = date.fromordinal(day)
    if calendar == "week":
        first -= timedelta(days=first.weekday())
        following = first + timedelta(days=7)
    elif calendar == "month":
        first = first.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
    else:
        following = first + timedelta(days=1)
    return _begin_us(first, zone), _begin_us(following, zone)


def _begin_us(day: date, zone: str) -> int:
    """Return the first moment at which the clocks of the zone show this date or a later one."""
    tz = _zone(zone)
    midnight = datetime(day.year, day.month, day.day, tzinfo=tz)
    begin = midnight.astimezone(UTC)
    if begin.astimezone(tz).date() == day and begin.astimezone(tz).time() == midnight.time():
        return (begin - _EPOCH) // _MICROSECOND
    # Midnight was skipped. Interpreted with the offset from before the jump, it lies at or after
    # the jump; with the one from after it, before. Jumps happen at whole seconds.
    late = (begin - _EPOCH) // _SECOND
    early = (midnight.replace(fold=1).astimezone(UTC) - _EPOCH) // _SECOND
    while late - early > 1:
        middle = (early + late) // 2
        shown = (_EPOCH + middle * _SECOND).astimezone(tz).date()
        early, late = (early, middle) if shown >= day else (middle, late)
    return late * 1_000_000
