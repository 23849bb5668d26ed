"""Which pages are allowed to read a response, for every origin that a client may send."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.http.answer import Answer, problem
from gateway.proxy.cors import Cors

ORIGINS = ("https://app.example.com", "https://*.example.org", "http://*.dev.test:8080")
CORS = Cors(ORIGINS, ("X-Request-ID", "Retry-After"), credentials=True)
EXPOSED = (
    "RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, "
    "Retry-After, X-Request-ID"
)


def request(*origins: str) -> Any:
    """A request of a page of an origin, or of none or several."""
    return SimpleNamespace(headers=CIMultiDict([("Origin", origin) for origin in origins]))


def fields_of(answer: Answer) -> dict[str, str]:
    """The fields of a response, each of which it has once."""
    pairs = [line.partition(": ") for line in answer.fields.decode().splitlines()]
    fields = {name: value for name, _, value in pairs}
    assert len(fields) == len(pairs)
    return fields


@pytest.mark.parametrize(
    ("origin", "is_allowed"),
    [
        ("https://app.example.com", True),
        ("https://a.example.org", True),
        ("https://a-1.b.example.org", True),
        ("http://x.dev.test:8080", True),
        ("http://app.example.com", False),
        ("https://app.example.com:8443", False),
        ("https://app.example.com.evil.test", False),
        ("https://example.org", False),
        ("https://.example.org", False),
        ("https://a..example.org", False),
        ("https://evilexample.org", False),
        ("https://evil.test/.example.org", False),
        ("https://evil.test#.example.org", False),
        ("https://evil.test:1.example.org", False),
        ("https://user@a.example.org", False),
        ("http://x.dev.test", False),
        ("https://*.example.org", False),
        ("*", False),
        ("null", False),
        ("", False),
        ("https://app.example.com, https://app.example.com", False),
    ],
)
def test_who_may_read(origin: str, is_allowed: bool) -> None:
    """An origin that is listed, or a host below one; nothing that only resembles them."""
    fields = fields_of(CORS.of_own(problem(429, "Too many"), request(origin)))
    assert fields["Vary"] == "Origin"
    allowing = {name: fields[name] for name in fields if name.startswith("Access-Control")}
    assert allowing == (
        {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Credentials": "true",
            "Access-Control-Expose-Headers": EXPOSED,
        }
        if is_allowed
        else {}
    )


@given(
    origin=st.one_of(
        st.text(max_size=20),
        st.from_regex(r"https?://[a-z.:/@#?*%\\-]{0,20}(example\.org|dev\.test:8080)?"),
    )
)
@example("https://a.example.org\r\nX: y")
@example("https://é.example.org")
def test_only_hosts_below_are_allowed(origin: str) -> None:
    """As a parser of URLs reads the origin, too; and no field is split."""
    answer = CORS.of_own(problem(429, "Too many"), request(origin))
    fields = fields_of(answer)
    assert answer.fields.count(b"\r\n") == answer.fields.count(b"\n") == len(fields)
    if "Access-Control-Allow-Origin" in fields:
        parts = urlsplit(origin)
        assert parts.username is None
        assert parts.path == parts.query == parts.fragment == ""
        host = parts.hostname or ""
        assert host == "app.example.com" or host.endswith((".example.org", ".dev.test"))


@pytest.mark.parametrize("origins", [(), ("https://app.example.com", "https://app.example.com")])
def test_without_a_single_origin_nothing_is_allowed(origins: tuple[str, ...]) -> None:
    """Caches are told that another request may get another response."""
    answer = Answer(503, b"Content-Type: text/html\r\nVary: Accept\r\nX-A: b\r\n", b"")
    assert fields_of(CORS.of_own(answer, request(*origins))) == {
        "Content-Type": "text/html",
        "Vary": "Accept, Origin",
        "X-A": "b",
    }


@pytest.mark.parametrize("origins", [(), ("https://any.test",)])
def test_any_page_may_read(origins: tuple[str, ...]) -> None:
    """The response is the same for all."""
    fields = fields_of(Cors(["*"]).of_own(Answer(200, b"", b""), request(*origins)))
    assert fields == {
        "Access-Control-Allow-Origin": "*",
        "Access-Control-Expose-Headers": EXPOSED.removesuffix(", X-Request-ID"),
    }


@pytest.mark.parametrize(
    ("theirs", "origin", "is_told"),
    [
        (b"\r\naccess-control-allow-origin: *", "https://app.example.com", True),
        (b"\r\nAccess-Control-Allow-Origin: x", "https://a.example.org", True),
        (b"\r\nAccess-Control-Allow-Origin: *", "https://evil.test", False),
        (b"\r\nAccess-Control-Allow-Headers: x", "https://app.example.com", False),
        (b"", "https://app.example.com", False),
    ],
)
def test_an_upstream_decides_about_its_own(theirs: bytes, origin: str, is_told: bool) -> None:
    """The gateway never allows what an upstream did not; it only adds the names of its fields."""
    line = f"Access-Control-Expose-Headers: {EXPOSED}\r\n".encode()
    assert CORS.of_upstream(theirs, request(origin)) == (line if is_told else b"")
