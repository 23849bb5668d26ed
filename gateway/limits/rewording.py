"""Suggestions for limits that people write in other words than the notation's.

A suggestion is the whole line, and only lines that can be parsed are suggested. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PERIODS: Final = {"secondly": "s", "minutely": "m", "hourly": "h", "daily": "d"}
_UNIT: Final = r"(?:ms|millisecond|s|sec|second|m|min|minute|h|hour|d|day)s?"

_MANY_UNITS: Final = re.compile(r"/\s*((?:[0-9]{1,9}\s*(?:ms|[smhd])\s*){2,8})(?![a-z])")
_ONE_UNIT: Final = re.compile(r"([0-9]+)\s*(ms|[smhd])")
_POWER: Final = re.compile(r"^([0-9]{1,9})[eE]\+?([0-9])(?=\s*/)")
_REQUESTS: Final = re.compile(
    r"^([0-9]+)\s*(?:r|reqs?|requests?|calls?|hits?|times)\b\s*(?=/|per\b|an?\b|each\b|every\b)"
)
_RATE_WORD: Final = re.compile(r"^([0-9]+)\s*(rps|qps|rpm|rph|rpd)\b")
_OVER_TIME: Final = re.compile(rf"^([0-9]+)\s*(?:per|an?|each|every)\s+(?=[0-9]*\s*{_UNIT}\b)")
_ADVERB: Final = re.compile(rf"^([0-9]+)\s*/?\s*({'|'.join(_PERIODS)})\b")
_KEYS: Final = re.compile(r"\bper\s+(.+)$")
_BETWEEN_KEYS: Final = re.compile(r"\s*(?:[,;|&+/]|\band\b|\bper\b|\s)\s*")
_NAMED: Final = re.compile(r"\b(header|cookie|query)(?:\s*[:=]\s*|\s+)(?=[\w-])")
_BETWEEN_LIMITS: Final = re.compile(r"\s*(?:[,;+&|]|\band\b)\s*(?=[0-9])")

_PLAIN: Final = (
    (re.compile(r"[\"']"), ""),
    (re.compile(r"^\s*(?:rate|limit|limit_req)\s*[=:]\s*"), ""),
    (re.compile(r"\s+nodelay\b"), ""),
    (re.compile(r"\s*[,;]\s*(?=(?:burst|per)\b)"), " "),
    (re.compile(r"\bburst\s*[=:]?\s*(?=[0-9])"), "burst "),
    (re.compile(r"\bper\s*[=:]\s*"), "per "),
    (_REQUESTS, r"\1"),
    (_OVER_TIME, r"\1/"),
    (re.compile(r"(/\s*(?:d|days?|weeks?|months?))\s+(?!in\b|per\b|burst\b)(?=[A-Z])"), r"\1 in "),
    (re.compile(rf"^([0-9]+\s*/\s*[0-9]*{_UNIT})\s*/\s*(?=[a-z])"), r"\1 per "),
    (re.compile(r"\s(?:by|for each|for|key)\s*[=:]?\s+(?=[a-z])"), " per "),
)
"""Replacements, applied in this order."""


def reworded(text: str, reads: Callable[[str], bool]) -> str:
    """Return the line that is probably meant; empty if none can be parsed.

    Args:
        text: a line that cannot be parsed.
        reads: whether a line can be parsed.
    """
    line = text.strip()
    for pattern, instead in _PLAIN:
        line = pattern.sub(instead, line)
    line = _MANY_UNITS.sub(_in_one_unit, line)
    line = _POWER.sub(lambda match: str(int(match[1]) * 10 ** int(match[2])), line)
    line = _RATE_WORD.sub(lambda match: f"{match[1]}/{match[2][-1]}", line)
    line = _ADVERB.sub(lambda match: f"{match[1]}/{_PERIODS[match[2]]}", line)
    line = _KEYS.sub(_joined, line)
    return line if line != text and reads(line) else ""


def several(text: str, reads: Callable[[str], bool]) -> list[str]:
    """Return the limits that were written in one line; empty if there is only one."""
    parts = _BETWEEN_LIMITS.split(text.strip())
    return parts if len(parts) > 1 and all(map(reads, parts)) else []


def _in_one_unit(match: re.Match[str]) -> str:
    parts = _ONE_UNIT.findall(match[1])
    total = sum(int(number) * _UNIT_MS[unit] for number, unit in parts)
    smallest = min((unit for _, unit in parts), key=_UNIT_MS.__getitem__)
    space = " " if match[0].endswith(" ") else ""
    return f"/{total // _UNIT_MS[smallest]}{smallest}{space}"


def _joined(match: re.Match[str]) -> str:
    named = _NAMED.sub(r"\1:", match[1].strip())
    return f"per {'+'.join(dict.fromkeys(filter(None, _BETWEEN_KEYS.split(named))))}"
