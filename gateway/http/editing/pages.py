"""Error pages: what an error looks like in each form, with its variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from html import escape
from typing import Final, NamedTuple

VARIABLES: Final = ("status", "reason", "title", "retry_after", "advice")
"""What a page may contain: none of it is anything that a client sent."""

_variable: Final = re.compile(r"\{(" + "|".join(VARIABLES) + r")\}")
_TRY_LATER: Final = frozenset({500, 502, 503, 504})


class Page(NamedTuple):
    """The forms of one error, as text with `VARIABLES` in braces; None for the default.

    Attributes:
        html: a page.
        text: plain text.
        problem: a problem document (RFC 9457).
        intercept: whether it also replaces such responses of the upstream.
    """

    html: str | None = None
    text: str | None = None
    problem: str | None = None
    intercept: bool = False


class Facts(NamedTuple):
    """What a page says.

    Attributes:
        status: the status code.
        reason: its name, as in the standard.
        title: what went wrong.
        retry_after: the seconds after which to return; None if that is unknown, or does not help.
    """

    status: int
    reason: str
    title: str
    retry_after: int | None = None

    @property
    def advice(self) -> str:
        """A sentence that says when to return; empty if returning does not help."""
        if self.retry_after is not None:
            return f"Please try again in {in_words(self.retry_after)}."
        return "Please try again later." if self.status in _TRY_LATER else ""


def in_words(seconds: int) -> str:
    """Return a time to wait in a unit that people count in, rounded up: never too early."""
    for size, unit, most in ((1, "second", 120), (60, "minute", 120), (3600, "hour", 48)):
        count = -(-seconds // size)
        if count < most:
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{-(-seconds // 86_400)} days"


def fill_html(text: str, facts: Facts) -> str:
    """Return a page with its variables filled in and escaped; other braces stay as they are."""
    return _fill(text, facts, escape)


def fill_text(text: str, facts: Facts) -> str:
    """Return plain text with its variables filled in."""
    return _fill(text, facts, str)


def fill_problem(text: str, facts: Facts) -> str:
    """Return a document with its variables filled in and escaped; an unknown time is `null`."""
    return _fill(text, facts, _in_json, unknown="null")


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _fill(text: str, facts: Facts, escaped: Callable[[str], str], unknown: str = "") -> str:
    wait = facts.retry_after
    values: Mapping[str, str] = {
        "status": str(facts.status),
        "reason": escaped(facts.reason),
        "title": escaped(facts.title),
        "retry_after": unknown if wait is None else str(wait),
        "advice": escaped(facts.advice),
    }
    return _variable.sub(lambda match: values[match[1]], text)
