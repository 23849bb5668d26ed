"""From requests to identities."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.net.tls.peer import ClientCertificate
from gateway.routing.keys import MAX_BYTES, REJECT, SKIP, UNAUTHORIZED, Absence, Key, compile_key
from gateway.routing.values import AMBIGUOUS


@dataclass(frozen=True)
class Request:
    """The parts of a request that keys are made from."""

    client: str = "203.0.113.7"
    is_from_proxy: bool = False
    client_key: str = "203.0.113.7"
    host: str = "a.test"
    method: str = "GET"
    path: str = "/"
    query: str = ""
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    client_certificate: ClientCertificate | None = None


def _key(
    *per: str, request: Request | None = None, if_missing: str = "ip", route: str = "/v1/pay"
) -> Key:
    return compile_key(per, if_missing=if_missing, route=route)(request or Request())


@pytest.mark.parametrize(
    ("per", "identity"),
    [
        ("ip", "203.0.113.7"),
        ("all", "all"),
        ("route", "route=/v1/pay"),
        ("host", "host=a.test"),
        ("method", "method=GET"),
        ("header:X-API-Key", "header:x-api-key=k"),
        ("cookie:sid", "cookie:sid=s"),
        ("query:q", "query:q=v"),
        ("header:x-api-key+route", "header:x-api-key=k|route=/v1/pay"),
        ("route+ip", "route=/v1/pay|ip=203.0.113.7"),
        ("all+method", "all|method=GET"),
    ],
)
def test_normal_forms(per: str, identity: str) -> None:
    """Each word has its value; composites keep the order in which they are written."""
    request = Request(
        query="a=1&q=v", headers=CIMultiDict({"x-api-key": "k", "cookie": "a=b; sid=s"})
    )
    assert _key(*per.split("+"), request=request) == identity


@pytest.mark.parametrize("word", ["country", "asn"])
def test_a_place_is_read_by_a_reader(word: str) -> None:
    """What it finds is the value; without a reader, the word is unknown."""
    readers = {word: lambda _name: lambda request: "X1" if request.client == "203.0.113.7" else ""}
    key = compile_key([word, "route"], if_missing="shared", route="/v1", readers=readers)
    assert key(Request()) == f"{word}=X1|route=/v1"
    assert key(Request(client="192.0.2.1")) == f"{word}=|route=/v1"
    with pytest.raises(ValueError, match=word):
        _key(word)


@pytest.mark.parametrize(
    ("if_missing", "single", "composite"),
    [
        ("ip", "ip=203.0.113.7", "ip=203.0.113.7|route=/v1/pay"),
        ("shared", "header:x-id=", "header:x-id=|route=/v1/pay"),
        ("skip", SKIP, SKIP),
        ("reject", REJECT, REJECT),
        ("unauthorized", UNAUTHORIZED, UNAUTHORIZED),
    ],
)
@pytest.mark.parametrize("headers", [{}, {"x-id": ""}])
def test_requests_without_an_identity(
    if_missing: str, single: str | Absence, composite: str | Absence, headers: dict[str, str]
) -> None:
    """An absent or empty value is replaced, shared, skipped or rejected, by the policy."""
    request = Request(headers=CIMultiDict(headers))
    assert _key("header:X-Id", request=request, if_missing=if_missing) == single
    assert _key("header:X-Id", "route", request=request, if_missing=if_missing) == composite


@pytest.mark.parametrize(
    "per", [[], ["ips"], ["header:"], ["header"], ["ip:"], ["ip:x"], ["jwt:sub"], [""]]
)
def test_unknown_words_are_refused(per: list[str]) -> None:
    """A word that is not known is an error when it is written."""
    with pytest.raises(ValueError, match="word"):
        compile_key(per, if_missing="ip", route="r")


@pytest.mark.parametrize("per", ["ip", "header:x"])
def test_unknown_ways_to_treat_absence_are_refused(per: str) -> None:
    """So is what should stand for an absent value."""
    with pytest.raises(ValueError, match="is not one of"):
        compile_key([per], if_missing="ignore", route="r")


@pytest.mark.parametrize(
    "query",
    [
        "key=secret",
        "a=1&key=secret&b=2",
        "k%65y=secret",
        "key=%73ecret",
        "key=secret&key=s%65cret",
        "&&key=secret&",
    ],
)
def test_spellings_of_a_query_parameter_are_one(query: str) -> None:
    """Percent-encoding a name or value makes no new identity."""
    assert _key("query:key", request=Request(query=query)) == "query:key=secret"


@pytest.mark.parametrize("query", ["", "key", "key=", "KEY=", "key=&key=", "xkey=1", "a=key;b"])
def test_query_parameters_that_are_absent(query: str) -> None:
    """A missing or empty value is absent."""
    assert _key("query:key", request=Request(query=query), if_missing="reject") is REJECT


@pytest.mark.parametrize(
    "query",
    [
        *("key=made-up&key=secret", "key=secret&key=", "key&key=secret", "key=a&k%65y=b"),
        *("x=1;key=secret", "key=secret;x=1", "key=a&x=1;key=b", "key=secret;key=other"),
        *("KEY=secret", "key=a&Key=b", "key[]=secret", "key=a&key[0]=b", "%20key=a", "key%00=a"),
    ],
)
@pytest.mark.parametrize("if_missing", ["ip", "shared", "skip", "reject"])
def test_ambiguous_query_parameters_are_not_missing(query: str, if_missing: str) -> None:
    """Where servers find different values, in any of their readings, no policy lets it pass."""
    assert _key("query:key", request=Request(query=query), if_missing=if_missing) is AMBIGUOUS


@pytest.mark.parametrize("query", ["api.key=a", "api%20key=a", "api+key=a&api_key=b", "api[key=a"])
def test_names_that_php_folds_are_not_another_parameter(query: str) -> None:
    """`api.key` is `api_key` there, and would be a way round the limit."""
    assert _key("query:api_key", request=Request(query=query), if_missing="skip") is AMBIGUOUS


def test_a_semicolon_elsewhere_is_nothing_odd() -> None:
    """Only what changes the value that is counted is refused."""
    request = Request(query="filter=a;b&key=secret&key=secret")
    assert _key("query:key", request=request) == "query:key=secret"


@pytest.mark.parametrize(
    "line", ["sid=abc", "a=b; sid=abc", "sid=abc;a", 'sid="abc"', "sid=%61bc", " sid = abc "]
)
def test_spellings_of_a_cookie_are_one(line: str) -> None:
    """Quotes, escapes and spaces around a cookie's value make no new identity."""
    assert (
        _key("cookie:sid", request=Request(headers=CIMultiDict({"cookie": line})))
        == "cookie:sid=abc"
    )


@pytest.mark.parametrize("line", ["", "sid", "sid=", 'sid=""', "xsid=abc", "sid.x=1"])
def test_cookies_that_are_absent(line: str) -> None:
    """A missing or empty value is absent."""
    request = Request(headers=CIMultiDict({"cookie": line}))
    assert _key("cookie:sid", request=request, if_missing="reject") is REJECT


@pytest.mark.parametrize(
    "line", ['sid="\\141bc"', "sid=a\\b", "sid=abc x", "sid=1; sid=2; sid=3; sid=4; sid=5"]
)
def test_cookies_that_are_read_in_different_ways(line: str) -> None:
    """Escapes and blanks, of which servers make different values; and more than four values."""
    request = Request(headers=CIMultiDict({"cookie": line}))
    assert _key("cookie:sid", request=request, if_missing="skip") is AMBIGUOUS


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("sid=a; sid=b", ["a", "b"]),
        ("sid=a; sid=a", ["a"]),
        ("sid=a; sid=%61; sid=b; sid=c; sid=d", ["a", "b", "c", "d"]),
        ("SID=a; sid=b", ["b", "a"]),
        ("x=1 sid=a; sid=b", ["b", "a"]),
    ],
)
def test_each_value_of_a_cookie_counts(line: str, values: list[str]) -> None:
    """Browsers send a cookie of two paths twice; whichever the origin takes is counted."""
    request = Request(headers=CIMultiDict({"cookie": line}))
    expected = tuple(f"cookie:sid={value}" for value in values)
    found = _key("cookie:sid", request=request, if_missing="skip")
    assert found == (expected if len(expected) > 1 else expected[0])


@pytest.mark.parametrize(
    ("if_missing", "expected"),
    [
        ("ip", ("ip=203.0.113.7", "cookie:sid=a")),
        ("shared", ("cookie:sid=", "cookie:sid=a")),
        ("skip", "cookie:sid=a"),
        ("reject", REJECT),
    ],
)
@pytest.mark.parametrize("line", ["sid=; sid=a", "x=1 sid=a", "SID=a"])
def test_an_empty_cookie_beside_another_is_missing_as_well(
    line: str, if_missing: str, expected: object
) -> None:
    """An origin that takes the empty one, or finds none, finds a request without an identity."""
    request = Request(headers=CIMultiDict({"cookie": line}))
    assert _key("cookie:sid", request=request, if_missing=if_missing) == expected


def test_combinations_are_few() -> None:
    """Two cookies of two values are four identities; three are too many."""
    request = Request(headers=CIMultiDict({"cookie": "a=1; a=2; b=3; b=4; c=5; c=6"}))
    assert _key("cookie:a", "route", "cookie:b", request=request) == tuple(
        f"cookie:a={a}|route=/v1/pay|cookie:b={b}" for a in (1, 2) for b in (3, 4)
    )
    assert _key("cookie:a", "cookie:b", "cookie:c", request=request) is AMBIGUOUS


@pytest.mark.parametrize(
    ("name", "lines", "value"),
    [
        ("X-Forwarded-For", ["a, b", "c"], "a, b, c"),
        ("Cookie", ["a=1", "b=2"], "a%3D1; b%3D2"),
        ("X-Key", ["k, l"], "k, l"),
    ],
)
def test_lists_are_one_value(name: str, lines: list[str], value: str) -> None:
    """On several lines or on one (RFC 9110, section 5.3); a comma elsewhere is a comma."""
    request = Request(headers=CIMultiDict((name, line) for line in lines))
    assert _key(f"header:{name}", request=request) == f"header:{name.lower()}={value}"


def test_the_scheme_of_credentials_has_no_case() -> None:
    """`bearer` and `BEARER` are the same scheme; credentials do have case."""
    keys = {
        _key("header:Authorization", request=Request(headers=CIMultiDict({"authorization": value})))
        for value in ("Bearer Abc", "bearer Abc", "BEARER   Abc")
    }
    assert keys == {"header:authorization=bearer Abc"}
    other = Request(headers=CIMultiDict({"authorization": "Bearer abc"}))
    assert _key("header:Authorization", request=other) not in keys


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("abc-123_~ !", "abc-123_~ !"),
        ("a=b|c%d", "a%3Db%7Cc%25d"),
        ("{tag}", "%7Btag%7D"),
        ("a\x00\n\x7f", "a%00%0A%7F"),
        ("\xe9", "%C3%A9"),
        ("\udcff", "%ED%B3%BF"),
    ],
)
def test_values_are_escaped(value: str, escaped: str) -> None:
    """Separators, braces and whatever is not printable ASCII are percent-encoded."""
    assert (
        _key("header:x", request=Request(headers=CIMultiDict({"x": value})))
        == f"header:x={escaped}"
    )


def test_long_identities_end_in_a_hash() -> None:
    """What is too long is bounded, stays readable at its beginning, and stays distinct."""
    first, second = (
        _key(
            "header:x-id",
            "route",
            request=Request(headers=CIMultiDict({"x-id": "v" * 65_536 + end})),
        )
        for end in "ab"
    )
    assert isinstance(first, str)
    assert isinstance(second, str)
    assert first != second
    assert first.startswith("header:x-id=vvv")
    assert len(first) <= MAX_BYTES
    assert _key("header:x-id", request=Request(headers=CIMultiDict({"x-id": first}))) != first


def test_values_at_the_bound_stay_whole() -> None:
    """Exactly 128 bytes are kept; one more is not."""
    room = MAX_BYTES - len("header:x-id=")
    fits = _key("header:x-id", request=Request(headers=CIMultiDict({"x-id": "v" * room})))
    longer = _key("header:x-id", request=Request(headers=CIMultiDict({"x-id": "v" * (room + 1)})))
    assert fits == "header:x-id=" + "v" * room
    assert isinstance(longer, str)
    assert "%~" in longer


VALUES = st.one_of(
    st.text(max_size=12),
    st.text("a:|=%{}+,\\\"' \x00\n\udcff\xe9", max_size=8),
    st.text("ab", min_size=110, max_size=140),
    st.sampled_from(["x|route=y", "ip=1", "%7C", "header:a=1|header:b=2", "a:b", "b:c"]),
)
PAIRS = st.tuples(VALUES, VALUES)


@given(PAIRS, PAIRS, st.sampled_from(["ip", "shared"]))
def test_different_values_never_share_an_identity(
    first: tuple[str, str], second: tuple[str, str], if_missing: str
) -> None:
    """`a:b` + `c` is never `a` + `b:c`, whatever the values hold."""
    key = compile_key(["header:a", "header:b"], if_missing=if_missing, route="r")
    texts = [key(Request(headers=CIMultiDict({"a": a, "b": b}))) for a, b in (first, second)]
    assert (texts[0] == texts[1]) == (first == second)


@given(VALUES, VALUES, VALUES)
def test_identities_are_bounded_printable_ascii(a: str, b: str, route: str) -> None:
    """No value can break out into a log, a protocol or the hash tag of a store key."""
    request = Request(
        query=f"q={quote(a, errors='surrogatepass')}", headers=CIMultiDict({"b": b}), host=a
    )
    for per in (["query:q"], ["header:b"], ["host", "route", "query:q", "header:b"]):
        text = compile_key(per, if_missing="shared", route=route)(request)
        assert isinstance(text, str)
        assert re.fullmatch(r"[ -z|~]{1,128}", text)


@pytest.mark.parametrize("name", ["X-Key", "Authorization"])
@pytest.mark.parametrize("first", ["fake", ""])
@pytest.mark.parametrize("if_missing", ["ip", "shared", "skip", "reject"])
def test_two_lines_that_differ_are_not_missing(name: str, first: str, if_missing: str) -> None:
    """Whichever of them an origin would take: no policy lets such a request pass."""
    both = Request(headers=CIMultiDict([(name, first), (name, "real")]))
    same = Request(headers=CIMultiDict([(name, "real"), (name, "real")]))
    assert _key(f"header:{name}", request=both, if_missing=if_missing) is AMBIGUOUS
    assert _key("route", f"header:{name}", request=both, if_missing=if_missing) is AMBIGUOUS
    assert _key(f"header:{name}", request=same) == f"header:{name.lower()}=real"
