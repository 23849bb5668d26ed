"""Keys in ThrottleX's normal form."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.routing.keys import REJECT, SKIP, Absence, Key
from gateway.routing.throttlex_key import compile_throttlex_key

WORDS = {"api_key": "header:x-api-key", "user": "header:x-user"}
ALL = ("ip", "api_key", "user", "route")


@dataclass
class Request:
    """What keys are made from."""

    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    client: str = "203.0.113.7"
    is_from_proxy: bool = False
    client_key: str = "203.0.113.7"
    host: str = ""
    method: str = "GET"
    path: str = "/"
    query: str = ""
    client_certificate: None = None


def key(
    labels: tuple[str, ...], headers: dict[str, str] | None = None, if_missing: str = "ip"
) -> Key:
    """The key of a request with these fields."""
    words = [WORDS.get(label, label) for label in labels]
    find = compile_throttlex_key(labels, words, if_missing=if_missing, route="/v1/pay")
    return find(Request(CIMultiDict(headers or {})))


SAID = {"X-API-Key": "k-4711", "X-User": "123"}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("ip",), "203.0.113.7"),
        (("api_key",), "k-4711"),
        (("user",), "123"),
        (("route",), "/v1/pay"),
        (("user", "route"), "user:123|route:/v1/pay"),
        (ALL, "ip:203.0.113.7|api_key:k-4711|user:123|route:/v1/pay"),
    ],
)
def test_the_normal_form(labels: tuple[str, ...], expected: str) -> None:
    """One part is plain, several have labels, as in its design."""
    assert key(labels, SAID) == expected


@pytest.mark.parametrize(
    ("if_missing", "one", "two"),
    [
        ("ip", "ip:203.0.113.7", "ip:203.0.113.7|route:/v1/pay"),
        ("shared", "user:", "user:|route:/v1/pay"),
        ("skip", SKIP, SKIP),
        ("reject", REJECT, REJECT),
    ],
)
def test_what_is_missing(if_missing: str, one: str | Absence, two: str | Absence) -> None:
    """The replacement of a missing value has a label, so that no client can choose it."""
    assert key(("user",), {}, if_missing) == one
    assert key(("user", "route"), {}, if_missing) == two


def test_an_address_is_not_said_twice() -> None:
    """It stands for whatever is missing, and is there already."""
    assert key(("ip", "user"), {}) == "ip:203.0.113.7"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("203.0.113.7", "api_key:203.0.113.7"),
        ("2001:db8::/64", "api_key:2001:db8::/64"),
        ("ip:203.0.113.7", "api_key:ip:203.0.113.7"),
        ("user:1|route:/x", "api_key:user:1%7Croute:/x"),
        ("1.2", "1.2"),
        ("beef", "beef"),
    ],
)
def test_nobody_is_counted_as_somebody_else(value: str, expected: str) -> None:
    """A client that chooses a value cannot choose an address, nor a key of several parts."""
    assert key(("api_key",), {"X-API-Key": value}) == expected


values = st.text(st.characters(codec="utf-8"), max_size=12)


@given(
    first=st.tuples(values, values),
    second=st.tuples(values, values),
    labels=st.sampled_from([("api_key",), ("api_key", "user"), ALL]),
)
def test_keys_are_one_to_one(
    first: tuple[str, str], second: tuple[str, str], labels: tuple[str, ...]
) -> None:
    """Of printable ASCII, and two requests that differ have two keys."""
    keys = []
    for api_key, user in (first, second):
        keys.append(key(labels, {"X-API-Key": api_key, "X-User": user}, "shared"))
    read = [pair[: len(set(labels) & set(WORDS))] for pair in (first, second)]
    assert (keys[0] == keys[1]) == (read[0] == read[1])
    for one in keys:
        assert isinstance(one, str)
        assert re.fullmatch(r"[ -z|~]*", one)


def test_a_long_key_ends_in_a_hash() -> None:
    """As all identities do, so that stores and tables have room for it."""
    long = key(("api_key",), {"X-API-Key": "k" * 5000})
    other = key(("api_key",), {"X-API-Key": "k" * 5001})
    assert isinstance(long, str)
    assert len(long) <= 128
    assert long != other


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("/v1/pay", "user:123|route:/v1/pay"),
        ("/v1/pay/", "user:123|route:/v1/pay"),
        ("/v1//pay", "user:123|route:/v1/pay"),
        ("//v1//pay", "user:123|route:/pay"),
        ("/v1/%70ay;a=1", "user:123|route:/v1/pay"),
        ("/v1%2fpay", "user:123|route:/v1/pay"),
        ("/v1/x/../pay", "user:123|route:/v1/pay"),
        ("/v1/Pay", "user:123|route:/v1/Pay"),
        ("/caf%c3%a9", "user:123|route:/caf%25C3%25A9"),
        ("/a|route:b", "user:123|route:/a%7Croute:b"),
        ("/", "user:123|route:/"),
        ("*", "user:123|route:*"),
    ],
)
def test_the_route_may_be_the_path(raw: str, expected: str) -> None:
    """As in its design; spellings that an origin may take for one path are one key."""
    find = compile_throttlex_key(
        ("user", "route"), ("header:x-user", "path"), if_missing="ip", route="/**"
    )
    assert find(Request(CIMultiDict(SAID), path=raw)) == expected
