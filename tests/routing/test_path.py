"""How request paths are read, and which spellings are refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.base.errors import BadRequestError
from gateway.routing.path import canonical_path, counted_path, readings
from gateway.routing.table import Pattern, RouteTable

ROUTES = ("/admin", "/public", "")
TABLE = RouteTable([(Pattern(None, f"{route}/**"), route) for route in ROUTES])


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a",
        "/a/",
        "/v1/users/12",
        "/a.b/c-d_e~f",
        "/a:b@c/$&'()*+,=!",
        "/-/.well-known",
        "/...",
    ],
)
def test_plain_paths_stay_as_they_are(path: str) -> None:
    """A path without anything to normalise is its own canonical form and only reading."""
    assert canonical_path(path) == path
    assert readings(path) == (path,)


@pytest.mark.parametrize(
    ("raw", "canonical"),
    [
        ("/%61dmin", "/admin"),
        ("/%7Euser/%7euser", "/~user/~user"),
        ("/a%3ab%40c", "/a:b@c"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/a%20b", "/a%20b"),
        ("/a%2fb", "/a%2Fb"),
        ("/50%25", "/50%25"),
        ("/what%3f%23", "/what%3F%23"),
        ("//admin", "/admin"),
        ("/a///b//", "/a/b/"),
        ("/./a/./b/.", "/a/b/"),
        ("/a/b/../c", "/a/c"),
        ("/a/b/..", "/a/"),
        ("/a/..", "/"),
        ("/public/%2e%2e/admin", "/admin"),
        ("/public/.%2E/admin", "/admin"),
        ("/a;v=1/b", "/a;v=1/b"),
        ("/a%3Bv", "/a;v"),
        ("/[x]|{y}", "/[x]|{y}"),
    ],
)
def test_one_form_for_all_spellings(raw: str, canonical: str) -> None:
    """Needless escapes are decoded, the others upper-cased, dots resolved, slashes merged."""
    assert canonical_path(raw) == canonical
    assert readings(raw)[0] == canonical


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "*",
        "admin",
        "/a b",
        "/a\x00b",
        "/\x02",
        "/a\x7f",
        "/a\n",
        "/\xe9",
        "/\udcff",
        "/a?b",
        "/a#b",
        "/%",
        "/%1",
        "/%zz",
        "/%u002e",
        "/a%00",
        "/%0d%0a",
        "/%7f",
        "/a\\b",
        "/public/..\\admin",
        "/a%5C..%5cadmin",
        "/..",
        "/../a",
        "/a/../../b",
        "/%2e%2e/a",
        "/public/..;/admin",
        "/public/..;x=1/admin",
        "/public/..%3B/admin",
        "/a/.;/b",
        "/public%2F..%2Fadmin",
        "/public/..%2Fadmin",
        "/public%2f../admin",
        "/a%2Fb/../c",
        "/a//../b",
        "/a;x/../b",
        "/x/a/../%2e%2e/b",
        "/public/%252e%252e/admin",
        "/public/%25252E./admin",
        "/public%252F..%252Fadmin",
        "/public/..%255Cadmin",
        "/a/../b/%252e%252e/c",
        "/%c0%ae%c0%ae/a",
        "/a%C0%AFb",
        "/%e0%80%ae",
        "/%f0%80%80%ae",
    ],
)
def test_what_cannot_be_read_in_one_way_is_refused(raw: str) -> None:
    """Controls, malformed escapes, backslashes and disguised dot segments are a 400."""
    with pytest.raises(BadRequestError) as refusal:
        canonical_path(raw)
    assert refusal.value.status == 400
    with pytest.raises(BadRequestError):
        readings(raw)


@pytest.mark.parametrize(
    ("raw", "others"),
    [
        ("/a/../b", {"/a/../b"}),
        ("/a/.", {"/a", "/a/."}),
        ("/a/%2e", {"/a", "/a/."}),
        ("/a/b/..", {"/a", "/a/b/.."}),
        ("/a/./", {"/a/./"}),
        ("/.", {"/."}),
        ("/a/..", {"/a/.."}),
        ("/a%2Fb", {"/a/b"}),
        ("/a;v/b", {"/a/b"}),
        ("/a//b", {"/a//b"}),
        ("//a/b", {"//a/b", "/b"}),
        ("//a", {"//a", "/"}),
        ("/a%2Fb;v%2Fc", {"/a/b;v/c", "/a%2Fb", "/a/b", "/a/b/c"}),
    ],
)
def test_every_other_reading_is_listed(raw: str, others: set[str]) -> None:
    """Readings of more literal and more lenient origins are listed with the canonical form."""
    assert set(readings(raw)[1:]) == others


SPELLINGS = st.lists(
    st.sampled_from(
        [
            *("/", "/", "/", "//", "%2F", "%2f", "\\", "%5C", "%252F", "%255c"),
            *("admin", "public", "%61dmin", "p%75blic", "x", "%2561dmin"),
            *("/.", "/..", ".", "..", "%2e", "%2E%2e", ".%2e", "%252e", "%c0%ae"),
            *(";", ";v=1", "%3B", "%253B", "%", "%25", "?", "#", "%00", "%C3%A9", "\xe9"),
        ]
    ),
    max_size=9,
).map("".join)


def _resolved(path: str) -> str:
    kept: list[str] = []
    for segment in path[1:].split("/"):
        if segment == "..":
            kept[-1:] = []
        elif segment != ".":
            kept.append(segment)
    return "/" + "/".join(kept)


def _decoded(path: str) -> str:
    return re.sub("%2f", "%252F", path, flags=re.IGNORECASE)


def _without_parameters(path: str) -> str:
    return "/".join(segment.partition(";")[0] for segment in path.split("/"))


def _merged(path: str) -> str:
    return re.sub("/+", "/", path)


ORIGINS: dict[str, Callable[[str], str]] = {
    "literal": lambda raw: unquote(_decoded(raw)),
    "decodes slashes": unquote,
    "decodes, then resolves": lambda raw: _resolved(unquote(raw)),
    "resolves, then decodes": lambda raw: unquote(_resolved(raw)),
    "resolves, keeps slashes encoded": lambda raw: _resolved(unquote(_decoded(raw))),
    "merges, resolves": lambda raw: _resolved(_merged(unquote(_decoded(raw)))),
    "decodes, merges, resolves": lambda raw: _resolved(_merged(unquote(raw))),
    "resolves, merges": lambda raw: _merged(_resolved(unquote(raw))),
    "cuts parameters, decodes": lambda raw: unquote(_without_parameters(raw)),
    "cuts parameters, resolves": lambda raw: _resolved(unquote(_without_parameters(raw))),
    "decodes, cuts parameters": lambda raw: _merged(_without_parameters(unquote(raw))),
    "takes backslashes for slashes": lambda raw: _resolved(unquote(raw).replace("\\", "/")),
    "parses as a URL": lambda raw: unquote(urlsplit(raw).path) or "/",
    "joins with a base": lambda raw: unquote(urlsplit(urljoin("http://a.test", raw)).path) or "/",
}


@given(SPELLINGS.map(lambda tail: "/" + tail.removeprefix("/")))
def test_no_spelling_gets_around_a_route(raw: str) -> None:
    """An admitted path is served by every kind of origin under the matched route."""
    try:
        route = TABLE.find("", raw, "GET", CIMultiDict())
    except BadRequestError:
        return
    for name, origin in ORIGINS.items():
        served = origin(raw)
        expected = next(to for to in ROUTES if served == to or served.startswith(to + "/"))
        assert route == expected, f"an origin that {name} serves {served!r}"


@given(st.one_of(SPELLINGS.map(lambda tail: "/" + tail), st.text().map(lambda tail: "/" + tail)))
def test_canonical_form_is_its_own(raw: str) -> None:
    """Canonicalising twice is canonicalising once, and readings begin with the same form."""
    try:
        canonical = canonical_path(raw)
    except BadRequestError:
        return
    assert canonical_path(canonical) == canonical
    assert readings(raw)[0] == canonical


@given(SPELLINGS.map(lambda tail: "/" + tail.removeprefix("/")))
def test_whatever_may_be_read_as_one_path_is_counted_as_one(raw: str) -> None:
    """Each reading of an origin, with a slash at the end or without.

    A reading that begins with `//` came from an origin that takes no authority out of it. Where
    `%2F` stands among parameters, what stands before them is counted: whatever follows is free to
    choose for an origin that cuts first.
    """
    try:
        if re.search(";[^/]*%2F", canonical_path(raw)):
            raw = _without_parameters(canonical_path(raw))
        counted = counted_path(raw)
        others = readings(raw)
    except BadRequestError:
        return
    assert counted_path(counted) == counted
    if raw.startswith("//"):
        others = (readings("/" + raw[2:].partition("/")[2])[0],)
    for one in others:
        if one.startswith("//"):
            continue
        with suppress(BadRequestError):
            assert counted_path(one) == counted
            assert counted_path(one + "/") == counted


@given(st.text("ab1.-:@%41", max_size=9), st.sampled_from(["", "/", "/x", "/x/y;v=1"]))
def test_an_authority_is_not_a_new_name(authority: str, path: str) -> None:
    """`new URL(target, base)` of Node drops `//authority`: a random one is not a new identity."""
    with suppress(BadRequestError):
        assert counted_path(f"//{authority}{path}") == counted_path(path or "/")


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=20), st.data())
def test_escaping_harmless_characters_changes_nothing(text: str, data: st.DataObject) -> None:
    """Any letter, digit or mark may be sent as an escape without changing the route."""
    plain = "/" + "".join(character for character in text if character.isalnum())
    spelled = "/" + "".join(
        f"%{ord(character):02x}" if data.draw(st.booleans()) else character
        for character in plain[1:]
    )
    assert canonical_path(spelled) == plain
