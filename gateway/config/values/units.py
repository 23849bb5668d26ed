"""Durations and sizes as people write them: `50ms`, `1.5h`, `16KiB`, and back to text.

A duration is whole microseconds, a size whole bytes. Units of time have the same names as in
limits. Independent of YAML and models.
"""

from __future__ import annotations

import re
from decimal import Decimal
from difflib import get_close_matches
from typing import Final

from gateway.limits.notation import UNIT_WORDS, UNITS

DURATIONS: Final[dict[str, int]] = {"us": 1, **UNITS}
"""Microseconds of each unit, by its short name, the shortest first."""

SIZES: Final[dict[str, int]] = {
    "B": 1,
    "kB": 1_000,
    "KB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "TB": 1_000_000_000_000,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}

_WORDS: Final[dict[str, str]] = {"us": "us", **UNIT_WORDS}
DELAY_PATTERN: Final = (
    rf"^\s*[0-9]{{1,16}}(\.[0-9]{{1,6}})?\s*({'|'.join(sorted(_WORDS, key=len, reverse=True))})\s*$"
)
DURATION_PATTERN: Final = DELAY_PATTERN.replace("[0-9]", "(?=[0-9.]*[1-9])[0-9]", 1)
SIZE_PATTERN: Final = r"^\s*[0-9]{1,16}(\.[0-9]{1,6})?\s*(B|[kK]B|MB|GB|TB|KiB|MiB|GiB|TiB)?\s*$"
SPEED_PATTERN: Final = SIZE_PATTERN.replace("[0-9]", "(?=[0-9.]*[1-9])[0-9]", 1).replace(
    "$", r"/\s*(s|sec|seconds?)\s*$"
)

MAX_DURATION_US: Final = 3_660 * DURATIONS["d"]
MAX_SIZE: Final = 1 << 50

_QUANTITY: Final = re.compile(r"\s*([0-9]{1,16}(?:\.[0-9]{1,6})?)\s*([^\s0-9]*)\s*")
DURATION: Final = re.compile(DELAY_PATTERN)
_SIZE: Final = re.compile(SIZE_PATTERN)

_NEAR_WORDS: Final[dict[str, str]] = {
    **_WORDS,
    **dict.fromkeys(("µs", "μs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("msec", "msecs"), "ms"),
    **dict.fromkeys(("secs",), "s"),
    **dict.fromkeys(("mins",), "m"),
    **dict.fromkeys(("hr", "hrs"), "h"),
}


class UnitError(ValueError):
    """Text that is not a duration or size; `hint` says how to fix it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def parse_duration(text: str) -> int:
    """Microseconds of `50ms`, `2s`, `1m`, `1.5h`, `1 day`; never negative.

    Raises:
        UnitError: a unit is missing or unknown, or it is not a number.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or not DURATION.match(text):
        raise _explain_duration(text, match)
    exact = Decimal(match[1]) * DURATIONS[_WORDS[match[2]]]
    value_us = int(exact)
    if value_us != exact:
        raise UnitError(f"{text.strip()} is not a whole number of us", "for example 500ms or 250us")
    if value_us > MAX_DURATION_US:
        raise UnitError(f"{text.strip()} is too long", "use at most 3660d")
    return value_us


def parse_size(text: str) -> int:
    """Bytes of `512`, `16KiB`, `1MiB`, `10MB`.

    Raises:
        UnitError: the unit is unknown, or it is not a number.
    """
    match = _QUANTITY.fullmatch(text)
    if match is None or not _SIZE.match(text):
        raise _explain_size(text, match)
    size = Decimal(match[1]) * SIZES[match[2] or "B"]
    if size != int(size):
        raise UnitError(
            f"{text.strip()} is not a whole number of bytes", "for example 512 or 16KiB"
        )
    if size > MAX_SIZE:
        raise UnitError(f"{text.strip()} is too large", "use at most 1024TiB")
    return int(size)


def parse_speed(text: str) -> int:
    """Bytes per second of `50B/s`, `1KiB/s`.

    Raises:
        UnitError: the time is missing or not a second, or there is no size.
    """
    size, slash, time = text.partition("/")
    if not slash:
        shown = text.strip() if text.strip()[:1].isdigit() else "1KiB"
        raise UnitError(f"{text.strip()} has no unit of time", f"for example {shown}/s")
    if _WORDS.get(time.strip()) != "s":
        message = f"{time.strip()!r} is not a second"
        raise UnitError(message, "use bytes per second, for example 50B/s or 1KiB/s")
    return parse_size(size)


def write_duration(value_us: int) -> str:
    """Return microseconds exactly, as in a configuration: `75s`, `1m`, `20ms`."""
    if value_us == 0:
        return "0s"
    unit = next(unit for unit in reversed(DURATIONS) if value_us % DURATIONS[unit] == 0)
    return f"{value_us // DURATIONS[unit]}{unit}"


def write_size(size: int) -> str:
    """Return bytes exactly, as in a configuration: `16KiB`, `10MB`, `512B`."""
    is_decimal = size % 1_000 == 0 and size % 1_024 != 0
    names = ("TB", "GB", "MB", "kB") if is_decimal else ("TiB", "GiB", "MiB", "KiB", "B")
    name = next(name for name in names if size % SIZES[name] == 0)
    return f"{size // SIZES[name]}{name}"


def write_number(value: int, kind: str) -> str | int:
    """Return a number as in a configuration, with the unit that its type has.

    Args:
        value: the number.
        kind: the description of the type, in which the pattern of its unit stands.
    """
    if repr(DURATION_PATTERN) in kind or repr(DELAY_PATTERN) in kind:
        return write_duration(value)
    if repr(SIZE_PATTERN) in kind:
        return write_size(value)
    return f"{write_size(value)}/s" if repr(SPEED_PATTERN) in kind else value


def format_duration(value_us: int) -> str:
    """Return microseconds for people, to about three digits: `100 ms`, `1 min 30 s`, `2 h`."""
    if value_us < 1_000:
        return f"{value_us} µs"
    if value_us < 1_000_000:
        return f"{_three_digits(value_us / 1_000)} ms"
    if value_us < 60_000_000:
        return f"{_three_digits(value_us / 1_000_000)} s"
    seconds = round(value_us / 1_000_000)
    parts = []
    for size, name in ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s")):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {'day' if name == 'days' and number == 1 else name}")
    return " ".join(parts[:2])


def format_size(size: int) -> str:
    """Return bytes for people: `16 KiB`, or `10 MB` if that is the rounder number."""
    is_decimal = size % 1_000 == 0 and size % 1_024 != 0
    names = ("TB", "GB", "MB", "kB") if is_decimal else ("TiB", "GiB", "MiB", "KiB")
    for name in names:
        if size >= SIZES[name]:
            return f"{_three_digits(size / SIZES[name])} {name}"
    return f"{size} B"


def _three_digits(value: float) -> str:
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _explain_duration(text: str, match: re.Match[str] | None) -> UnitError:
    shown = text.strip()
    if match is None:
        if shown.startswith("-"):
            return UnitError(f"{shown} is negative", "for example 500ms, 2s or 1m")
        if re.fullmatch(r"([0-9.]+\s*[a-z]+\s*){2,}", shown):
            return UnitError(
                f"{shown!r} has two units", "use one number and one unit, for example 90s"
            )
        return UnitError(f"{shown!r} is not a duration", "for example 500ms, 2s or 1m")
    number, unit = match[1], match[2]
    if not unit:
        return UnitError(f"{number} has no unit of time", f"for example {number}s")
    return UnitError(f"{unit!r} is not a unit of time", _unit_hint(number, unit))


def _unit_hint(number: str, unit: str) -> str:
    units = "units are us, ms, s, m, h and d"
    lower = unit.lower()
    if lower in _NEAR_WORDS:
        return f"write {number}{_NEAR_WORDS[lower]}; {units}"
    near = get_close_matches(lower, _NEAR_WORDS, 1)
    return f"did you mean {number}{_NEAR_WORDS[near[0]]}? Known {units}" if near else units


def _explain_size(text: str, match: re.Match[str] | None) -> UnitError:
    units = "units are B, KiB, MiB, GiB (1024) and kB, MB, GB (1000)"
    shown = text.strip()
    if match is None:
        message = f"{shown} is negative" if shown.startswith("-") else f"{shown!r} is not a size"
        return UnitError(message, "for example 512, 16KiB or 1MiB")
    number, unit = match[1], match[2]
    first = unit[:1].upper()
    if first in {"K", "M", "G", "T"}:
        return UnitError(
            f"{unit!r} is not a unit of size", f"did you mean {number}{first}iB? Known {units}"
        )
    return UnitError(f"{unit!r} is not a unit of size", units)
