"""The notation of limits: what is read, and what is refused and why."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gateway.base.errors import LimitSyntaxError
from gateway.limits.notation import (
    MAX_COUNT,
    MAX_FILL_US,
    MAX_PER_SECOND,
    MAX_PERIOD_US,
    UNITS,
    ParsedLimit,
    parse_limit,
)
from gateway.limits.rate import Limit

S = 1_000_000


def _written(parsed: ParsedLimit) -> str:
    """Write a limit in its shortest form."""
    limit = parsed.limit
    if limit.algorithm == "concurrency":
        text = f"{limit.count} at once"
    elif limit.calendar:
        text = f"{limit.count}/{limit.calendar} in {limit.zone}"
    else:
        text = f"{limit.count}/{_period(limit.period_us)}"
    if limit.burst != limit.count:
        text += f" burst {limit.burst}"
    if parsed.per != ("ip",):
        text += f" per {'+'.join(parsed.per)}"
    return text


def _period(period_us: int) -> str:
    """Write a period in the largest unit with a whole number: `1s` as `s`, `300s` as `5m`."""
    for unit in ("d", "h", "m", "s", "ms"):
        number, rest = divmod(period_us, UNITS[unit])
        if number and not rest:
            return unit if number == 1 else f"{number}{unit}"
    raise ValueError(f"a period must be whole milliseconds, not {period_us} us")


@pytest.mark.parametrize(
    ("text", "count", "period_us", "burst", "per"),
    [
        ("10/s", 10, S, 10, ("ip",)),
        ("3/5m", 3, 300 * S, 3, ("ip",)),
        ("100/h burst 20 per ip+route", 100, 3600 * S, 20, ("ip", "route")),
        ("1000/day", 1000, 86_400 * S, 1000, ("ip",)),
        ("10/s per all", 10, S, 10, ("all",)),
        ("5/250ms", 5, 250_000, 5, ("ip",)),
        ("10/sec", 10, S, 10, ("ip",)),
        ("10/second", 10, S, 10, ("ip",)),
        ("10/2 seconds", 10, 2 * S, 10, ("ip",)),
        ("10/minutes", 10, 60 * S, 10, ("ip",)),
        ("10/min", 10, 60 * S, 10, ("ip",)),
        ("10/hour", 10, 3600 * S, 10, ("ip",)),
        ("10/2days", 10, 172_800 * S, 10, ("ip",)),
        ("  10 /  s   burst  20  per  ip + route ", 10, S, 20, ("ip", "route")),
        ("10/s per host+method", 10, S, 10, ("host", "method")),
        ("10/s per header:X-API-Key", 10, S, 10, ("header:x-api-key",)),
        ("10/s per cookie:Session_ID", 10, S, 10, ("cookie:Session_ID",)),
        ("10/s per query:api[key]+ip", 10, S, 10, ("query:api[key]", "ip")),
        ("010/s", 10, S, 10, ("ip",)),
        ("10000000/s", 10_000_000, S, 10_000_000, ("ip",)),
    ],
)
def test_lines_are_read(
    text: str, count: int, period_us: int, burst: int, per: tuple[str, ...]
) -> None:
    """Every unit and key word, spaces wherever they do no harm."""
    assert parse_limit(text) == ParsedLimit(Limit(count, period_us, burst), per)


@pytest.mark.parametrize(
    ("text", "column", "message", "hint"),
    [
        ("", 1, "the limit is empty", "write one, for example"),
        ("10", 3, "'/' and a unit of time are missing", "10/s"),
        ("10/", 4, "the unit of time is missing", "10/s"),
        ("10/5", 5, "the unit of time is missing", "10/5s"),
        ("ten/s", 1, "begins with a number, not 'ten'", "10/s"),
        ("/s", 1, "begins with a number, not '/'", "10/s"),
        ("0/s", 1, "a limit of zero", "use 1 or more"),
        ("10/0s", 4, "a period of zero", "at least 1"),
        ("-1/s", 1, "-1 is negative", "at least 1"),
        ("+1/s", 1, "+1 has a sign", "write 1"),
        ("1.5/s", 1, "1.5 is not a whole number", "for 1.5 per s, write 3/2s"),
        ("0.1/m", 1, "0.1 is not a whole number", "1/10m"),
        ("2.0/s", 1, "2.0 is not a whole number", "2/s"),
        ("1,000/s", 1, "1,000 has separators", "write 1000"),
        ("1_000_000/s", 1, "1_000_000 has separators", "write 1000000"),
        ("2k/s", 1, "2k has a suffix", "write 2000"),
        ("1e3/s", 1, "1e3 is not a whole number", "write 1000/s"),
        ("99999999999999999999/s", 1, "too large", str(MAX_COUNT)),
        ("1000000001/d", 1, "too large", str(MAX_COUNT)),
        ("10000001/s", 1, "faster than can be counted", str(MAX_PER_SECOND)),
        ("1/367d", 3, "at most 366 days", "shorter"),
        ("1/d burst 4000", 11, "more than ten years", "smaller burst"),
        ("10/week", 4, "'week' is not a unit", "7d"),
        ("10/M", 4, "'M' is not a unit", "did you mean 'm'"),
        ("10/5M", 5, "'M' is not a unit", "did you mean 'm'"),
        ("10/secs", 4, "'secs' is not a unit", "did you mean"),
        ("10/burst 5", 4, "'burst' is not a unit", "a unit of time comes first"),
        ("10 per minute", 4, "'per' where '/' was expected", "10/m"),
        ("10 requests/h", 4, "'requests' is not needed", "10/h"),
        ("10rpm", 3, "'rpm' is not needed", "10/m"),
        ("10/s burst", 11, "a number is missing", "20"),
        ("10/s burst x", 12, "a burst is a whole number, not 'x'", "20"),
        ("10/s burst 0", 12, "a burst of zero", "at least 1"),
        ("10/s burst 5x", 12, "'5x' is not a whole number", "5 x"),
        ("10/s burst=20", 6, "'burst=20' is not expected", "write burst 20"),
        ("10/s burts 20", 6, "'burts' is not expected", "did you mean 'burst'"),
        ("10/s burst 5 burst 6", 14, "'burst' is not expected", "give burst once"),
        ("10/s per ip burst 6", 13, "'burst' is not expected", "put burst before per"),
        ("10/s by ip", 6, "'by' is not expected", "write per ip"),
        ("10/s ip", 6, "'ip' is not expected", "per KEY"),
        ("10/s per ip per route", 13, "'per' is not expected", "ip+route"),
        ("10/s per", 9, "a key is missing", "ip, route, all"),
        ("10/s per ip+", 13, "a key is missing", "header:NAME"),
        ("10/s per IP", 10, "'IP' is not a key", "did you mean 'ip'"),
        ("10/s per everybody", 10, "'everybody' is not a key", "did you mean 'all'"),
        ("10/s per X-API-Key", 10, "'X-API-Key' is not a key", "header:X-API-Key"),
        ("10/s per header: X-A", 10, "'header:' needs a name", "write 10/s per header:X-A"),
        ("10/s per header:a(b", 17, "'a(b' is not a valid name of a header", "letters"),
        ("10/s per asn:sub", 10, "'asn:' is not a key", "did you mean 'asn'?"),
        ("10/s per xyz:sub", 10, "'xyz:' is not a key", "one of ip"),
        ("10/s per ip+all", 10, "'all' cannot be combined with other keys", "remove it"),
        ("10/s per ip+route+ip", 19, "'ip' is named twice", "once"),
    ],
)
def test_what_cannot_be_read_is_explained(text: str, column: int, message: str, hint: str) -> None:
    """The column of the mistake, the text found, and the fix."""
    with pytest.raises(LimitSyntaxError) as caught:
        parse_limit(text)

    assert caught.value.column == column
    assert message in caught.value.reason
    assert hint in caught.value.hint


_names = st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True)
_keys = st.one_of(
    st.sampled_from(["ip", "route", "host", "method"]),
    _names.map(lambda name: f"header:{name.lower()}"),
    _names.map(lambda name: f"cookie:{name}"),
    _names.map(lambda name: f"query:{name}"),
)
_pers = st.just(("all",)) | st.lists(_keys, min_size=1, max_size=4, unique=True).map(tuple)


@given(
    count=st.integers(1, MAX_COUNT),
    period_ms=st.integers(1, MAX_PERIOD_US // 1000),
    burst=st.integers(1, MAX_COUNT),
    per=_pers,
)
@example(count=10, period_ms=60_000, burst=10, per=("ip",))
def test_limits_come_back_from_their_text(
    count: int, period_ms: int, burst: int, per: tuple[str, ...]
) -> None:
    """The canonical text of every limit that can be written is read as that limit."""
    period_us = period_ms * 1000
    assume(count * S <= MAX_PER_SECOND * period_us)
    assume(burst * period_us <= MAX_FILL_US * count)
    parsed = ParsedLimit(Limit(count, period_us, burst), per)

    assert parse_limit(_written(parsed)) == parsed


@given(st.text(st.sampled_from("0123456789/ smhdburtpeiproute+:.-_kM\t"), max_size=24) | st.text())
def test_any_text_is_read_or_refused_at_a_column(text: str) -> None:
    """Nothing else is raised, and the column lies in the text or just behind it."""
    try:
        parsed = parse_limit(text)
    except LimitSyntaxError as error:
        assert 1 <= error.column <= len(text) + 1  # noqa: PT017 - the other way out is as good
        assert error.reason  # noqa: PT017
    else:
        assert parse_limit(_written(parsed)) == parsed
