"""Days, weeks and months of real zones, against the clocks on their walls."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.limits.calendar import Calendar, is_zone, window, zones
from gateway.limits.horizon import LONGEST_US

ALL_ZONES: Final = sorted(available_timezones())
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US

ODD: Final = {
    "clocks forward": ("Europe/Berlin", datetime(2026, 3, 29, 12, tzinfo=UTC)),
    "clocks back": ("Europe/Berlin", datetime(2026, 10, 25, 12, tzinfo=UTC)),
    "half an hour": ("Australia/Lord_Howe", datetime(2026, 10, 4, 3, tzinfo=UTC)),
    "45 minutes off": ("Pacific/Chatham", datetime(2026, 9, 26, 20, tzinfo=UTC)),
    "no midnight": ("America/Sao_Paulo", datetime(2017, 10, 15, 12, tzinfo=UTC)),
    "midnight twice": ("America/St_Johns", datetime(2006, 10, 29, 3, 10, tzinfo=UTC)),
    "between the two": ("America/St_Johns", datetime(2006, 10, 29, 2, 30, 30, tzinfo=UTC)),
    "back to yesterday": ("America/Havana", datetime(2026, 11, 1, 4, 30, tzinfo=UTC)),
    "a day left out": ("Pacific/Apia", datetime(2011, 12, 30, 11, tzinfo=UTC)),
    "the day before": ("Pacific/Apia", datetime(2011, 12, 30, 9, tzinfo=UTC)),
    "another one": ("Pacific/Kwajalein", datetime(1993, 8, 21, 13, tzinfo=UTC)),
    "odd seconds": ("Africa/Monrovia", datetime(1972, 1, 7, 12, tzinfo=UTC)),
}


def moment(now_us: int) -> datetime:
    """Microseconds as a moment."""
    return EPOCH + timedelta(microseconds=now_us)


def label(now_us: int, calendar: Calendar, zone: str) -> date:
    """The first date of what the clocks on the wall say it is."""
    shown = moment(now_us).astimezone(ZoneInfo(zone)).date()
    if calendar == "week":
        return date.fromisocalendar(shown.isocalendar().year, shown.isocalendar().week, 1)
    return shown.replace(day=1) if calendar == "month" else shown


def assert_window(now_us: int, calendar: Calendar, zone: str, step_us: int) -> None:
    """It begins and ends with the first moment that shows its label, or a later one."""
    start_us, end_us = window(now_us, calendar, zone)
    assert start_us <= now_us < end_us
    first, following = label(start_us, calendar, zone), label(end_us, calendar, zone)
    assert first < following
    around = {start_us - 1, start_us - 24 * HOUR_US, end_us - 1, now_us}
    around |= set(range(start_us - 3 * HOUR_US, start_us, step_us))
    around |= set(range(end_us - 3 * HOUR_US, end_us, step_us))
    for moment_us in around:
        shown = label(moment_us, calendar, zone)
        assert shown < first if moment_us < start_us else shown < following


@pytest.mark.parametrize("calendar", ["day", "week", "month"])
@pytest.mark.parametrize("case", ODD)
def test_windows_begin_as_clocks_show_it(case: str, calendar: Calendar) -> None:
    """Minute by minute, where clocks were changed in every way that they have been."""
    zone, at = ODD[case]
    now_us = (at - EPOCH) // timedelta(microseconds=1)
    for offset_us in range(-26 * HOUR_US, 27 * HOUR_US, HOUR_US // 2):
        assert_window(now_us + offset_us, calendar, zone, 15 * MINUTE_US)
    assert_window(now_us, calendar, zone, MINUTE_US // 2)


@settings(max_examples=200)
@given(
    now_us=st.integers(HOUR_US * 24 * 60, 2**51),
    calendar=st.sampled_from(["day", "week", "month"]),
    zone=st.sampled_from(ALL_ZONES),
)
@example(now_us=1_325_239_200_000_000, calendar="day", zone="Pacific/Apia")
def test_windows_cover_all_time(now_us: int, calendar: Calendar, zone: str) -> None:
    """In any zone at any time, each window ends where the next begins, and holds its ends."""
    assert_window(now_us, calendar, zone, HOUR_US // 4)
    start_us, end_us = window(now_us, calendar, zone)
    assert window(start_us, calendar, zone) == (start_us, end_us)
    assert window(end_us - 1, calendar, zone) == (start_us, end_us)
    assert window(start_us - 1, calendar, zone)[1] == start_us
    assert window(end_us, calendar, zone)[0] == end_us


@pytest.mark.parametrize(
    ("zone", "at", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        ("America/Sao_Paulo", "2017-10-15", 23),
        ("America/St_Johns", "2006-10-29", 25),
        ("Pacific/Apia", "2011-12-29", 24),
        ("Pacific/Apia", "2011-12-31", 24),
        ("Asia/Kathmandu", "2026-01-01", 24),
    ],
)
def test_days_are_as_long_as_they_were(zone: str, at: str, hours: float) -> None:
    """Days of 23, 23.5, 24.5 and 25 hours, and none between 29 and 31 December 2011 in Samoa."""
    noon = datetime.fromisoformat(at).replace(hour=12, tzinfo=ZoneInfo(zone))
    start_us, end_us = window((noon - EPOCH) // timedelta(microseconds=1), "day", zone)
    assert (end_us - start_us) / HOUR_US == hours


def test_samoa_went_from_thursday_to_saturday() -> None:
    """The 29th ends where the 31st begins."""
    thursday = datetime(2011, 12, 29, 12, tzinfo=ZoneInfo("Pacific/Apia"))
    end_us = window((thursday - EPOCH) // timedelta(microseconds=1), "day", "Pacific/Apia")[1]
    assert moment(end_us).astimezone(ZoneInfo("Pacific/Apia")).date() == date(2011, 12, 31)


def test_only_names_of_zones_are_zones() -> None:
    """Folders of the database, paths out of it, and empty names are not."""
    assert is_zone("Europe/Berlin")
    assert is_zone("UTC")
    assert zones() >= {"Europe/Berlin", "UTC"}
    for name in ("Europe", "Europe/Atlantis", "../../etc/passwd", "/etc/passwd", "", "a\x00b"):
        assert not is_zone(name)


@given(
    st.sampled_from(ALL_ZONES),
    st.integers(0, 30_000).map(lambda days: EPOCH + timedelta(days=days, hours=5)),
    st.sampled_from(list(LONGEST_US)),
)
@example("Antarctica/Casey", datetime(2010, 3, 4, 18, tzinfo=UTC), "day")
def test_no_window_is_longer_than_the_longest(
    zone: str, moment: datetime, calendar: Calendar
) -> None:
    """A wait of that length covers the end of the window that was open before."""
    start, end = window((moment - EPOCH) // timedelta(microseconds=1), calendar, zone)
    assert end - start <= LONGEST_US[calendar]
