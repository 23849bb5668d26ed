"""The one-line notation of limits: `10/s burst 20 per header:X-API-Key+route`.

    line  = (rate / quota / once) ["per" key *("+" key)]
    rate  = count "/" [number] unit ["burst" number]
    quota = count "/" ("day" / "week" / "month") "in" zone
    once  = count "at once"
    unit  = "ms" / "s" / "m" / "h" / "d" (or the word: second, minutes, ...)
    zone  = a name of the IANA time zone database, such as Europe/Berlin
    key   = "ip" / "route" / "all" / "host" / "method" / "country" / "asn"
          / "header:" name / "cookie:" name / "query:" name / "path:" name / "jwt:" name
          / "json:" name / "form:" name
          / "owner" / "resource"  (callers of ratio's protocol)

A rate is counted by the algorithm that its policy names. A quota is counted in the days, weeks or
months of a calendar (fixed windows), and `50 at once` counts what is in flight (concurrency); these
two imply their algorithm.

Spaces between words are optional; everything else is strict, because a misread limit would be
noticed only in production. This module converts text to values; `gateway.limits.rate`
defines what they mean.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from fractions import Fraction
from typing import Final, NamedTuple

from gateway.base.errors import LimitSyntaxError
from gateway.limits import calendar
from gateway.limits.calendar import Calendar
from gateway.limits.cursor import Cursor
from gateway.limits.key_words import CALLER_KEYS, PLAIN_KEYS, read_keys
from gateway.limits.rate import Limit
from gateway.limits.rewording import reworded, several

UNITS: Final[dict[str, int]] = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""Microseconds of each unit, by its short name."""

UNIT_WORDS: Final[dict[str, str]] = {
    **{unit: unit for unit in UNITS},
    **dict.fromkeys(("millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "m"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}

CALENDAR_WORDS: Final[dict[str, Calendar]] = {
    **dict.fromkeys(("d", "day", "days"), "day"),
    **dict.fromkeys(("week", "weeks"), "week"),
    **dict.fromkeys(("month", "months"), "month"),
}

MAX_COUNT: Final = 1_000_000_000
MAX_PERIOD_US: Final = 366 * UNITS["d"]
MAX_PER_SECOND: Final = 10_000_000
"""Above this, rounding the interval between two requests to whole nanoseconds is off by more than 1
%.
"""
MAX_FILL_US: Final = 3_660 * UNITS["d"]
"""The longest time for an empty bucket to fill, ten years: times in stores stay far below 2**53
microseconds.
"""
LEASE_US: Final = 60 * UNITS["s"]
"""Default time for which a request in flight holds its slot without a sign of life."""

_LEADING_DIGITS = re.compile(r"[0-9]+")
_NUMBERISH = re.compile(r"[-+]?[0-9][0-9_.,'eEkKM]*")
_WORD = re.compile(r"[^\s/+]+")
_OVER_TIME = re.compile(r"\s*(?:/|(?:per|an?|each|every|in)\s)?\s*([^\s/+]+)")
_ZONE = re.compile(r"[^\s]+")

_UNLIMITED: Final = frozenset(("unlimited", "none", "null", "off", "no", "infinite", "inf"))
_NO_LIMIT: Final = "to have no limit, remove the key"
_BYTES: Final = re.compile(r"[kKMG]?i?[Bb](?:ytes|its|ps)?\b")
_EXAMPLE: Final = "for example 10/s, 3/5m or 100/h burst 20 per ip"


class ParsedLimit(NamedTuple):
    """A parsed line: the limit, and the key words it is counted per, in order."""

    limit: Limit
    per: tuple[str, ...]


def parse_limit(text: str) -> ParsedLimit:
    """Read a limit line.

    Raises:
        LimitSyntaxError: with the column of the mistake and how to fix it.
    """
    try:
        return _Line(text).read()
    except LimitSyntaxError as error:
        hint = _hint_for_the_line(error)
        if not hint:
            raise
        raise LimitSyntaxError(text, error.column, error.reason, hint) from None


def _reads(text: str) -> bool:
    try:
        _Line(text).read()
    except LimitSyntaxError:
        return False
    return True


def _hint_for_the_line(error: LimitSyntaxError) -> str:
    """Return a better hint than that of the position: the line or lines probably meant."""
    if error.hint.startswith("write ") or error.reason.endswith((" twice", " is missing")):
        return ""
    lines = several(error.text, _reads)
    if lines:
        return f"use a list for several limits: limits: [{', '.join(lines)}]"
    line = reworded(error.text, _reads)
    return f"write {line}" if line else ""


class _Line(Cursor):
    """Parses one line; each method reads one part of the grammar."""

    __slots__ = ()

    def read(self) -> ParsedLimit:
        self.skip_gap()
        if self.position == len(self.text):
            raise self.error(0, "the limit is empty", f"write one, {_EXAMPLE}")
        count_at = self.position
        count = self._count()
        limit = self._in_flight(count) if self.keyword("at") else self._rate(count_at, count)
        per: tuple[str, ...] = ("ip",)
        if self.keyword("per"):
            per = read_keys(self)
        self._expect_end()
        return ParsedLimit(limit, per)

    # The count and the period.

    def _in_flight(self, count: int) -> Limit:
        begin = self.position
        if not self.keyword("once"):
            hint = f"write {count} at once"
            raise self.error(begin, "'once' is missing after 'at'", hint)
        return Limit(count, LEASE_US, count, "concurrency")

    def _rate(self, count_at: int, count: int) -> Limit:
        self._slash(count)
        quota = self._quota(count)
        if quota:
            return quota
        period_us = self._period(count)
        self._check_rate(count_at, count, period_us)
        burst = count
        if self.keyword("burst"):
            burst_at = self.position
            burst = self._whole("a burst")
            self._check_gap(burst_at)
            self._check_burst(burst_at, burst, count, period_us)
        if self.word_at(self.position) == "in":
            hint = f"for example {count}/day in UTC, {count}/week in UTC or {count}/month in UTC"
            raise self.error(self.position, "only calendar windows have a time zone", hint)
        return Limit(count, period_us, burst)

    def _quota(self, count: int) -> Limit | None:
        """Read a calendar limit; returns None, having read nothing, if the line is not one."""
        begin = self.position
        word = self.word_at(begin)
        kind = CALENDAR_WORDS.get(word)
        if kind is None:
            return None
        self.position += len(word)
        if self.keyword("in"):
            return Limit(
                count,
                calendar.CALENDARS[kind],
                count,
                "fixed_window",
                calendar=kind,
                zone=self._zone(),
            )
        self.position = begin
        return None

    def _zone(self) -> str:
        begin = self.position
        match = _ZONE.match(self.text, begin)
        if match is None:
            raise self.error(begin, "a time zone is missing", "for example UTC or Europe/Berlin")
        zone = match.group()
        if not calendar.is_zone(zone):
            raise self.error(begin, f"{zone!r} is not a known time zone", _zone_hint(zone))
        self.position = match.end()
        return zone

    # Numbers.

    def _count(self) -> int:
        begin = self.position
        if not _NUMBERISH.match(self.text, begin):
            found = self.word_at(begin) or self.text[begin]
            hint = _NO_LIMIT if found.lower() in _UNLIMITED else _EXAMPLE
            raise self.error(begin, f"a limit begins with a number, not {found!r}", hint)
        return self._whole("a limit")

    def _slash(self, count: int) -> None:
        self.skip_gap()
        if not self.text.startswith("/", self.position):
            self._explain_missing_slash(count)
        self.position += 1
        self.skip_gap()

    def _explain_missing_slash(self, count: int) -> None:
        begin = self.position
        word = self.word_at(begin)
        rest = self.text[begin + len(word) :]
        if word in {"per", "an", "a", "each", "every"}:
            unit = _WORD.match(rest.strip())
            short = UNIT_WORDS.get(unit.group()) if unit else None
            if short:
                hint = f"write {count}/{short}"
                raise self.error(begin, f"{word!r} where '/' was expected", hint)
        if word in {"r", "req", "reqs", "request", "requests", "rps", "rpm", "rph", "qps"}:
            unit_of = {"rpm": "m", "rph": "h"}
            unit_word = _OVER_TIME.match(rest)
            short = UNIT_WORDS.get(unit_word[1]) if unit_word else None
            hint = f"write {count}/{short or unit_of.get(word, 's')}"
            raise self.error(begin, f"{word!r} is not needed after the number", hint)
        if word in {"concurrent", "connections", "parallel", "in", "inflight", "in-flight", "max"}:
            hint = f"write {count} at once"
            raise self.error(begin, f"{word!r} where '/' was expected", hint)
        found = repr(word) if word else "nothing"
        hint = f"write {count}/s, {count}/m, {count}/h or {count}/d"
        raise self.error(begin, f"'/' and a unit of time are missing; found {found}", hint)

    def _period(self, count: int) -> int:
        begin = self.position
        number = 1
        if _NUMBERISH.match(self.text, begin):
            number = self._whole("a period")
            self.skip_gap()
        at = self.position
        word = self.word_at(at)
        if not word:
            hint = f"write {count}/{number if number > 1 else ''}s, or use m, h or d"
            raise self.error(at, "the unit of time is missing", hint)
        unit = UNIT_WORDS.get(word)
        if unit is None:
            hint = self._unit_hint(count, word)
            raise self.error(at, f"{word!r} is not a unit of time", hint)
        self.position += len(word)
        period_us = number * UNITS[unit]
        if period_us > MAX_PERIOD_US:
            raise self.error(begin, "a period is at most 366 days", "use a shorter one")
        return period_us

    @staticmethod
    def _unit_hint(count: int, word: str) -> str:
        units = "units are ms, s, m, h and d"
        lower = word.lower()
        days = {"w": 7, "m": 30, "y": 365}.get(lower[:1], 0)
        if lower in {"w", "week", "weeks", "mo", "month", "months"}:
            kind = "week" if days == 7 else "month"
            return f"write {count}/{kind} in UTC, in another time zone, or {count}/{days}d"
        if lower in {"y", "year", "years"}:
            return f"{units}; did you mean {days}d?"
        if lower.startswith("burst") or lower == "per":
            return f"a unit of time comes first; {units}"
        near = [lower] if lower in UNIT_WORDS else get_close_matches(lower, UNIT_WORDS, 1)
        return f"did you mean {near[0]!r}? Known {units}" if near else units

    def _whole(self, what: str) -> int:
        """Read a whole number of at least 1."""
        begin = self.position
        numberish = _NUMBERISH.match(self.text, begin)
        if numberish is None:
            found = self.word_at(begin)
            message = f"{what} is a whole number, not {found!r}" if found else "a number is missing"
            raise self.error(begin, message, "for example 20")
        raw = numberish.group()
        digits = _LEADING_DIGITS.match(raw)
        is_plain = digits is not None and digits.end() == len(raw)
        if digits is None or not (is_plain or (what == "a period" and raw[digits.end()].isalpha())):
            raise self._odd_number(begin, raw, what)
        most = MAX_COUNT if what != "a period" else MAX_PERIOD_US
        number = int(digits.group()[: len(str(most)) + 1])
        if number == 0:
            hint = "use 1 or more; to refuse all requests, give the route respond: {status: 403}"
            raise self.error(begin, f"{what} of zero", hint if what == "a limit" else "at least 1")
        if number > most:
            raise self.error(begin, f"{digits.group()} is too large", f"{what} is at most {most}")
        self.position = begin + digits.end()
        return number

    def _odd_number(self, begin: int, raw: str, what: str) -> LimitSyntaxError:
        suffixed = re.fullmatch(r"([0-9]+)([kKM])", raw)
        if suffixed and _BYTES.match(self.text, begin + suffixed.start(2)):
            hint = "bandwidth cannot be limited; 10/s counts requests"
            raise self.error(begin, "a limit counts requests, not bytes", hint)
        if suffixed:
            number = int(suffixed[1]) * (1_000_000 if suffixed[2] == "M" else 1_000)
            return self.error(begin, f"{raw} has a suffix", f"write {number}")
        if raw.startswith("-"):
            return self.error(begin, f"{raw} is negative", f"{what} is at least 1")
        if raw.startswith("+"):
            return self.error(begin, f"{raw} has a sign", f"write {raw[1:]}")
        if re.fullmatch(r"[0-9]{1,3}([_,.'][0-9]{3})+", raw) and not raw.startswith("0"):
            digits = re.sub(r"\D", "", raw)
            return self.error(begin, f"{raw} has separators", f"write {digits}")
        if re.fullmatch(r"[0-9]{1,9}[.,][0-9]{1,6}", raw):
            return self.error(begin, f"{raw} is not a whole number", self._fraction_hint(raw))
        return self.error(
            begin, f"{raw} is not a whole number", "use digits only, for example 1000"
        )

    def _fraction_hint(self, raw: str) -> str:
        fraction = Fraction(raw.replace(",", "."))
        slash = re.compile(r"\s*/\s*(?:1\s*)?([a-z]+)").match(self.text, self.position + len(raw))
        if fraction == 0 or slash is None or slash[1] not in UNIT_WORDS:
            return "use a whole number"
        over = fraction.denominator if fraction.denominator > 1 else ""
        return f"for {raw} per {slash[1]}, write {fraction.numerator}/{over}{slash[1]}"

    def _check_rate(self, at: int, count: int, period_us: int) -> None:
        if count * 1_000_000 > MAX_PER_SECOND * period_us:
            hint = f"use at most {MAX_PER_SECOND} per second"
            raise self.error(at, "this is faster than can be counted exactly", hint)

    def _check_burst(self, at: int, burst: int, count: int, period_us: int) -> None:
        if burst * period_us > MAX_FILL_US * count:
            message = f"a burst of {burst} would take more than ten years to refill"
            raise self.error(at, message, "use a smaller burst or a faster rate")

    def _check_gap(self, begin: int) -> None:
        if self.text[self.position : self.position + 1].strip():
            found = self.word_at(begin)
            number = self.text[begin : self.position]
            hint = f"write {number} {self.text[self.position :]}"
            if found.removeprefix(number) in UNIT_WORDS:
                hint = f"a burst is a number of requests, for example burst {number}"
            raise self.error(begin, f"{found!r} is not a whole number", hint)

    # Words.

    def _expect_end(self) -> None:
        self.skip_gap()
        begin = self.position
        if begin == len(self.text):
            return
        word = self.word_at(begin) or self.text[begin]
        raise self.error(begin, f"{word!r} is not expected here", self._end_hint(word))

    def _end_hint(self, word: str) -> str:
        before = self.text[: self.position]
        has_burst, has_per = " burst " in before, " per " in before
        if word.lower() in _MISPLACED:
            return _MISPLACED[word.lower()]
        if word == "burst":
            is_rate = " once" not in before and " in " not in before
            again = "give burst once" if has_burst else "put burst before per"
            return again if is_rate else "only a rate such as 10/s can have a burst"
        if word == "per" or (has_per and word in (*PLAIN_KEYS, *CALLER_KEYS)):
            return "join keys with +, for example per ip+route"
        numbered = re.fullmatch(r"(burst|per)[=:]?(.+)", word)
        if numbered:
            return f"write {numbered[1]} {numbered[2]}"
        if word in {"by", "for", "each", "key"} and not has_per:
            return f"write per {self.text[self.position + len(word) :].strip() or 'ip'}"
        near = get_close_matches(word.lower(), ("burst", "per"), 1, 0.5)
        return f"did you mean {near[0]!r}?" if near else "after the rate: burst NUMBER, per KEY"


_MISPLACED: Final = {
    "in": "a time zone comes right after day, week or month: 10/day in UTC per ip",
    "at": "use either a rate such as 10/s, or 10 at once",
    **dict.fromkeys(
        ("queue", "queued", "delay", "wait", "max_wait", "timeout"),
        "waiting is configured beside limit: queue: {max: 100, max_wait: 2s}",
    ),
}


def _zone_hint(zone: str) -> str:
    known = calendar.zones()
    if not known:
        return "this machine has no time zone database; install the package tzdata"
    by_folded = {name.casefold(): name for name in sorted(known)}
    folded = zone.casefold()
    if folded in by_folded:
        return f"did you mean {by_folded[folded]}?"
    if re.fullmatch(r"(?:utc|gmt)?[-+][0-9:]+", folded):
        return "a zone is a name such as UTC or Europe/Berlin"
    in_folder = [name for name in by_folded if name.startswith(f"{folded}/")]
    if in_folder:
        return f"for example {by_folded[in_folder[0]]}"
    near = [name for name in by_folded if name.endswith(f"/{folded}")]
    near = near or get_close_matches(folded, by_folded, 1)
    return f"did you mean {by_folded[near[0]]}?" if near else "such as UTC or Europe/Berlin"
