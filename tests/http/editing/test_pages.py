"""The pages of errors: what they say, safely, in HTML, text and JSON."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.editing.pages import Facts, fill_html, fill_problem, fill_text, in_words
from gateway.http.editing.plain_page import PLAIN_PAGE_FIELDS, plain_page, plain_text

ALL = "{status}|{reason}|{title}|{retry_after}|{advice}|{other}|{ status }"
FACTS = st.builds(
    Facts,
    st.sampled_from((400, 404, 405, 413, 429, 500, 502, 503, 504)),
    st.text(max_size=20),
    st.text(max_size=20),
    st.none() | st.integers(1, 10**9),
)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "1 second"),
        (2, "2 seconds"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (121, "3 minutes"),
        (7_140, "119 minutes"),
        (7_141, "2 hours"),
        (7_201, "3 hours"),
        (172_800, "2 days"),
        (172_801, "3 days"),
    ],
)
def test_times_in_words(seconds: int, words: str) -> None:
    """In a unit that people count in."""
    assert in_words(seconds) == words


@given(seconds=st.integers(1, 10**9))
def test_words_are_never_early(seconds: int) -> None:
    """A person who comes back then is admitted; it is at most a bit later than necessary."""
    count, unit = in_words(seconds).split()
    size = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}[unit.rstrip("s")]
    assert seconds <= int(count) * size < seconds + size
    assert (count == "1") != unit.endswith("s")


def test_what_is_filled_in() -> None:
    """All variables, and nothing else in braces."""
    facts = Facts(429, "Too Many Requests", "Too <many> & more", 90)
    rest = "90|Please try again in 90 seconds.|{other}|{ status }"
    assert fill_text(ALL, facts) == f"429|Too Many Requests|Too <many> & more|{rest}"
    assert fill_html(ALL, facts) == f"429|Too Many Requests|Too &lt;many&gt; &amp; more|{rest}"
    unknown = Facts(404, "Not Found", "Nothing", None)
    assert fill_text("{retry_after}|{advice}", unknown) == "|"
    assert fill_problem("[{retry_after}]", unknown) == "[null]"
    assert Facts(503, "", "", None).advice == "Please try again later."


@given(facts=FACTS)
def test_nothing_filled_in_leaves_its_place(facts: Facts) -> None:
    """No text becomes markup, another variable, or the end of a string."""
    assert "<" not in fill_html(ALL, facts)
    document = json.loads(fill_problem('{"title": "{title}", "after": {retry_after}}', facts))
    assert document == {"title": facts.title, "after": facts.retry_after}


class Reader(HTMLParser):
    """Lists the elements of a page, with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.elements.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.words += data


@given(facts=FACTS)
def test_the_plain_page_is_complete_in_itself(facts: Facts) -> None:
    """It says what happened and when to return; it loads nothing, runs nothing, fits any scheme."""
    page = plain_page(facts)
    read = Reader(page)
    assert set(read.elements) == {
        *("html", "head", "meta", "title", "style", "body", "main", "h1", "p"),
        *(["strong"] if facts.advice else []),
    }
    assert not {"src", "href", "style", "action", "http-equiv"} & read.attributes.keys()
    assert '<meta name="color-scheme" content="light dark">' in page
    assert "color:" not in re.sub(r"<meta[^>]*>", "", page)
    assert f"{facts.status} {facts.reason}".strip() in read.words
    assert facts.advice in read.words
    assert plain_text(facts).startswith(f"{facts.status} {facts.reason}\n")


def test_the_policy_of_the_plain_page_admits_its_styles_and_nothing_else() -> None:
    """By the hash of what is between the tags, to the byte (CSP 3, section 6.7.3.3)."""
    page = plain_page(Facts(404, "Not Found", "Nothing"))
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = PLAIN_PAGE_FIELDS.decode()
    assert policy.startswith("Content-Security-Policy: default-src 'none'; ")
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.count("\r\n") == 1
