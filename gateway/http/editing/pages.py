"""Error pages: what an error looks like in each form, with its status and reason filled in."""

from __future__ import annotations

from typing import NamedTuple


class Page(NamedTuple):
    """The forms of one error, as text with `{status}` and `{reason}`; None for the default.

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


def fill_page(text: str, status: int, reason: str) -> str:
    """Return a page with its variables filled in; other braces stay as they are."""
    return text.replace("{status}", str(status)).replace("{reason}", reason)
