"""The one-line notation of limits: `10/s burst 20 per header:X-API-Key+route`.

    line  = count "/" [number] unit ["burst" number] ["per" key *("+" key)]
    unit  = "ms" / "s" / "m" / "h" / "d" (or the word: second, minutes, ...)
    key   = "ip" / "route" / "all" / "host" / "method"
          / "header:" name / "cookie:" name / "query:" name

Spaces between words are free, all else is strict: a limit that was read otherwise than it
was meant would be found out in production only. Text becomes values here, and values text;
what the values mean is in `gateway.limits.rate`.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from fractions import Fraction
from typing import Final, NamedTuple

from gateway.errors import LimitSyntaxError
from gateway.limits.rate import Limit

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

PLAIN_KEYS: Final = ("ip", "route", "all", "host", "method")
NAMED_KEYS: Final = ("header", "cookie", "query")

MAX_COUNT: Final = 1_000_000_000
MAX_PERIOD_US: Final = 366 * UNITS["d"]
MAX_PER_SECOND: Final = 10_000_000
"""Above this the whole nanoseconds between two requests would be off by more than 1 %."""
MAX_FILL_US: Final = 3_660 * UNITS["d"]
"""Ten years for an empty bucket to fill: times in stores stay far below 2**53 microseconds."""

_GAP = re.compile(r"\s*")
_LEADING_DIGITS = re.compile(r"[0-9]+")
_NUMBERISH = re.compile(r"[-+]?[0-9][0-9_.,'eEkKM]*")
_WORD = re.compile(r"[^\s/+]+")
_TOKEN = re.compile(r"[!#$%&'*.^_`|~0-9A-Za-z-]+")
_PLAIN_VALUE = re.compile(r"[\x21-\x2a\x2c-\x7e]+")

_EXAMPLE: Final = "such as 10/s, 3/5m or 100/h burst 20 per ip"


class ParsedLimit(NamedTuple):
    """What a line says: the limit, and the key words it is counted per, in order."""

    limit: Limit
    per: tuple[str, ...]


def parse_limit(text: str) -> ParsedLimit:
    """Read a limit line.

    Raises:
        LimitSyntaxError: with the column of the trouble and what would do.
    """
    return _Line(text).read()


def format_limit(parsed: ParsedLimit) -> str:
    """Write a limit in its shortest canonical form; `parse_limit` reads it back."""
    limit = parsed.limit
    text = f"{limit.count}/{format_period(limit.period_us)}"
    if limit.burst != limit.count:
        text += f" burst {limit.burst}"
    if parsed.per != ("ip",):
        text += f" per {'+'.join(parsed.per)}"
    return text


def format_period(period_us: int) -> str:
    """`1s` as `s`, `300s` as `5m`: the largest unit that leaves a whole number."""
    for unit in ("d", "h", "m", "s", "ms"):
        number, rest = divmod(period_us, UNITS[unit])
        if number and not rest:
            return unit if number == 1 else f"{number}{unit}"
    raise ValueError(f"a period is whole milliseconds, not {period_us} us")


class _Line:
    """A cursor over one line; each method reads one part of the grammar."""

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def read(self) -> ParsedLimit:
        self._skip_gap()
        if self.position == len(self.text):
            raise self._error(0, "the limit is empty", f"write one {_EXAMPLE}")
        count_at = self.position
        count = self._count()
        period_us = self._period(count)
        self._check_rate(count_at, count, period_us)
        burst = count
        if self._keyword("burst"):
            burst_at = self.position
            burst = self._whole("a burst")
            self._check_gap(burst_at)
            self._check_burst(burst_at, burst, count, period_us)
        per: tuple[str, ...] = ("ip",)
        if self._keyword("per"):
            per = self._keys()
        self._expect_end()
        return ParsedLimit(Limit(count, period_us, burst), per)

    # Numbers.

    def _count(self) -> int:
        begin = self.position
        if not _NUMBERISH.match(self.text, begin):
            found = self._word_at(begin) or self.text[begin]
            raise self._error(begin, f"a limit begins with a number, not {found!r}", _EXAMPLE)
        count = self._whole("a limit")
        self._skip_gap()
        if not self.text.startswith("/", self.position):
            self._explain_missing_slash(count)
        self.position += 1
        self._skip_gap()
        return count

    def _explain_missing_slash(self, count: int) -> None:
        begin = self.position
        word = self._word_at(begin)
        rest = self.text[begin + len(word) :]
        if word in {"per", "an", "a", "each", "every"}:
            unit = _WORD.match(rest.strip())
            short = UNIT_WORDS.get(unit.group()) if unit else None
            if short:
                hint = f"write {count}/{short}"
                raise self._error(begin, f"{word!r} where '/' was expected", hint)
        if word in {"r", "req", "reqs", "request", "requests", "rps", "rpm", "rph", "qps"}:
            unit_of = {"rpm": "m", "rph": "h"}
            unit_word = _WORD.match(rest.strip().lstrip("/").strip())
            short = UNIT_WORDS.get(unit_word.group()) if unit_word else None
            hint = f"write {count}/{short or unit_of.get(word, 's')}"
            raise self._error(begin, f"{word!r} is not needed after the number", hint)
        found = repr(word) if word else "nothing"
        hint = f"write {count}/s, {count}/m, {count}/h or {count}/d"
        raise self._error(begin, f"'/' and a unit of time are missing; found {found}", hint)

    def _period(self, count: int) -> int:
        begin = self.position
        number = 1
        if _NUMBERISH.match(self.text, begin):
            number = self._whole("a period")
            self._skip_gap()
        at = self.position
        word = self._word_at(at)
        if not word:
            hint = f"write {count}/{number if number > 1 else ''}s, or m, h, d"
            raise self._error(at, "the unit of time is missing", hint)
        unit = UNIT_WORDS.get(word)
        if unit is None:
            raise self._error(at, f"{word!r} is not a unit of time", self._unit_hint(word))
        self.position += len(word)
        period_us = number * UNITS[unit]
        if period_us > MAX_PERIOD_US:
            raise self._error(begin, "a period is at most 366 days", "write a shorter one")
        return period_us

    @staticmethod
    def _unit_hint(word: str) -> str:
        units = "units are ms, s, m, h and d"
        lower = word.lower()
        if lower in {"month", "months", "mo", "week", "weeks", "w", "year", "years", "y"}:
            days = {"w": 7, "m": 30, "y": 365}[lower[0]]
            return f"{units}; {days}d may be what you mean"
        if lower.startswith("burst") or lower == "per":
            return f"a unit of time comes first; {units}"
        near = [lower] if lower in UNIT_WORDS else get_close_matches(lower, UNIT_WORDS, 1)
        return f"did you mean {near[0]!r}? Known {units}" if near else units

    def _whole(self, what: str) -> int:
        """Read a whole number of at least 1."""
        begin = self.position
        numberish = _NUMBERISH.match(self.text, begin)
        if numberish is None:
            found = self._word_at(begin)
            message = f"{what} is a whole number, not {found!r}" if found else "a number is missing"
            raise self._error(begin, message, "such as 20")
        raw = numberish.group()
        digits = _LEADING_DIGITS.match(raw)
        is_plain = digits is not None and digits.end() == len(raw)
        if digits is None or not (is_plain or (what == "a period" and raw[digits.end()].isalpha())):
            raise self._odd_number(begin, raw, what)
        most = MAX_COUNT if what != "a period" else MAX_PERIOD_US
        number = int(digits.group()[: len(str(most)) + 1])
        if number == 0:
            hint = "a limit lets at least 1 through; to refuse everything, leave the route out"
            raise self._error(begin, f"{what} of zero", hint if what == "a limit" else "at least 1")
        if number > most:
            raise self._error(begin, f"{digits.group()} is too large", f"{what} is at most {most}")
        self.position = begin + digits.end()
        return number

    def _odd_number(self, begin: int, raw: str, what: str) -> LimitSyntaxError:
        suffixed = re.fullmatch(r"([0-9]+)([kKM])", raw)
        if suffixed:
            number = int(suffixed[1]) * (1_000_000 if suffixed[2] == "M" else 1_000)
            return self._error(begin, f"{raw} has a suffix", f"write {number}")
        if raw.startswith("-"):
            return self._error(begin, f"{raw} is negative", f"{what} is at least 1")
        if raw.startswith("+"):
            return self._error(begin, f"{raw} has a sign", f"write {raw[1:]}")
        if re.fullmatch(r"[0-9]{1,3}([_,.'][0-9]{3})+", raw) and not raw.startswith("0"):
            digits = re.sub(r"\D", "", raw)
            return self._error(begin, f"{raw} has separators", f"write {digits}")
        if re.fullmatch(r"[0-9]{1,9}[.,][0-9]{1,6}", raw):
            return self._error(begin, f"{raw} is not a whole number", self._fraction_hint(raw))
        return self._error(begin, f"{raw} is not a whole number", "digits only, such as 1000")

    def _fraction_hint(self, raw: str) -> str:
        fraction = Fraction(raw.replace(",", "."))
        slash = re.compile(r"\s*/\s*(?:1\s*)?([a-z]+)").match(self.text, self.position + len(raw))
        if fraction == 0 or slash is None or slash[1] not in UNIT_WORDS:
            return "whole numbers only"
        over = fraction.denominator if fraction.denominator > 1 else ""
        return f"{raw} each {slash[1]} is written {fraction.numerator}/{over}{slash[1]}"

    def _check_rate(self, at: int, count: int, period_us: int) -> None:
        if count * 1_000_000 > MAX_PER_SECOND * period_us:
            hint = f"at most {MAX_PER_SECOND} each second"
            raise self._error(at, "faster than can be counted exactly", hint)

    def _check_burst(self, at: int, burst: int, count: int, period_us: int) -> None:
        if burst * period_us > MAX_FILL_US * count:
            message = f"a burst of {burst} would take more than ten years to come back"
            raise self._error(at, message, "a smaller burst or a faster rate")

    def _check_gap(self, begin: int) -> None:
        if self.text[self.position : self.position + 1].strip():
            found = self._word_at(begin)
            number = self.text[begin : self.position]
            hint = f"write {number} {self.text[self.position :]}"
            raise self._error(begin, f"{found!r} is not a whole number", hint)

    # Words.

    def _keyword(self, keyword: str) -> bool:
        """Whether the next word is `keyword`; if so it is behind us."""
        self._skip_gap()
        if self._word_at(self.position) != keyword:
            return False
        self.position += len(keyword)
        self._skip_gap()
        return True

    def _expect_end(self) -> None:
        self._skip_gap()
        begin = self.position
        if begin == len(self.text):
            return
        word = self._word_at(begin) or self.text[begin]
        raise self._error(begin, f"{word!r} is not expected here", self._end_hint(word))

    def _end_hint(self, word: str) -> str:
        before = self.text[: self.position]
        has_burst, has_per = " burst " in before, " per " in before
        if word == "burst":
            return "burst is said once" if has_burst else "burst comes before per"
        if word == "per" or (has_per and word in PLAIN_KEYS):
            return "join keys with +, such as per ip+route"
        numbered = re.fullmatch(r"(burst|per)[=:]?(.+)", word)
        if numbered:
            return f"write {numbered[1]} {numbered[2]}"
        if word in {"by", "for", "each", "key"} and not has_per:
            return f"write per {self.text[self.position + len(word) :].strip() or 'ip'}"
        near = get_close_matches(word.lower(), ("burst", "per"), 1, 0.5)
        return f"did you mean {near[0]!r}?" if near else "after the rate: burst NUMBER, per KEY"

    # Keys.

    def _keys(self) -> tuple[str, ...]:
        begin = self.position
        keys = [self._key()]
        while True:
            self._skip_gap()
            if not self.text.startswith("+", self.position):
                break
            self.position += 1
            self._skip_gap()
            at = self.position
            key = self._key()
            if key in keys:
                raise self._error(at, f"{key!r} is named twice", "each key once")
            keys.append(key)
        if len(keys) > 1 and "all" in keys:
            hint = "all is one count for everybody: leave it or the other keys out"
            raise self._error(begin, "'all' stands alone", hint)
        return tuple(keys)

    def _key(self) -> str:
        begin = self.position
        word = self._word_at(begin)
        if not word:
            raise self._error(begin, "a key is missing", f"one of {_keys_text()}")
        kind, colon, name = word.partition(":")
        self.position += len(word)
        if not colon:
            if word in PLAIN_KEYS:
                return word
            raise self._error(begin, f"{word!r} is not a key", self._key_hint(word))
        if kind not in NAMED_KEYS:
            raise self._error(begin, f"{kind + ':'!r} is not a key", self._key_hint(kind))
        if not name:
            hint = f"such as {kind}:{_EXAMPLE_NAMES[kind]}, without a space"
            raise self._error(begin, f"{word!r} lacks a name", hint)
        allowed = _PLAIN_VALUE if kind == "query" else _TOKEN
        if not allowed.fullmatch(name):
            hint = "letters, digits and - _ . are safe"
            raise self._error(
                begin + len(kind) + 1, f"{name!r} cannot be the name of a {kind}", hint
            )
        return f"{kind}:{name.lower() if kind == 'header' else name}"

    @staticmethod
    def _key_hint(word: str) -> str:
        lower = word.lower()
        if lower in NAMED_KEYS:
            return f"such as {lower}:{_EXAMPLE_NAMES[lower]}"
        if lower in {"everybody", "everyone", "global", "total", "any"}:
            return "did you mean 'all'?"
        if lower in {"client", "address", "addr", "remote_addr", "client_ip"}:
            return "did you mean 'ip'?"
        if lower.startswith(("x-", "authorization", "user-agent")):
            return f"did you mean 'header:{word}'?"
        near = get_close_matches(lower, (*PLAIN_KEYS, *NAMED_KEYS), 1)
        if near and near[0] in NAMED_KEYS:
            return f"did you mean '{near[0]}:...'?"
        return f"did you mean {near[0]!r}?" if near else f"one of {_keys_text()}"

    # The cursor.

    def _word_at(self, position: int) -> str:
        match = _WORD.match(self.text, position)
        return match.group() if match else ""

    def _skip_gap(self) -> None:
        gap = _GAP.match(self.text, self.position)
        if gap:
            self.position = gap.end()

    def _error(self, position: int, message: str, hint: str) -> LimitSyntaxError:
        return LimitSyntaxError(self.text, position + 1, message, hint)


_EXAMPLE_NAMES: Final = {"header": "X-API-Key", "cookie": "session", "query": "api_key"}


def _keys_text() -> str:
    named = ", ".join(f"{kind}:NAME" for kind in NAMED_KEYS)
    return f"{', '.join(PLAIN_KEYS)}, {named}"
