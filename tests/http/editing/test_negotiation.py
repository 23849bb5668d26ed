"""What is chosen by `Accept`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.editing.negotiation import preferred

OFFERS = {
    "json": ("application/problem+json", "application/json"),
    "html": ("text/html",),
    "text": ("text/plain",),
}


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "html"),
        ("text/*", "html"),
        ("text/*;q=0.5, text/plain", "text"),
        ("TEXT/HTML ; Q=0.4 , application/json;q=0.3", "html"),
        ("text/html;q=0.001, application/json;q=0", "html"),
        ("text/html;level=1", "json"),
        ("application/json, text/html", "json"),
        ("text/html;q=2, text/plain;q=0.1", "text"),
        ("image/png", "json"),
        ("*/*, text/html;q=0.1, application/*;q=0", "text"),
        ("garbage, ;;, text/html", "html"),
        (",".join(["a/b"] * 32) + ",text/html", "json"),
        ("x" * 4000 + ",text/html", "json"),
    ],
)
def test_the_best_of_what_is_on_offer(accept: str, chosen: str) -> None:
    """By quality, from the most specific range; among equals the default."""
    assert preferred([accept], OFFERS, "json") == chosen


def test_several_fields_are_one_list() -> None:
    """As RFC 9110 has it, section 5.3."""
    assert preferred(["application/json;q=0.1", "text/html"], OFFERS, "json") == "html"


@given(accept=st.lists(st.text(max_size=50), max_size=5))
def test_anything_can_be_read(accept: list[str]) -> None:
    """Whatever a client sends, something on offer is chosen."""
    assert preferred(accept, OFFERS, "json") in OFFERS
