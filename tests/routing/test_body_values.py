"""Fields of bodies: what every server finds, and what only some do."""

from __future__ import annotations

import json
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.routing.body_values import compile_body_value
from gateway.routing.values import AMBIGUOUS, Values

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


def _json(body: str | bytes, name: str = "user", *types: str, **fields: str) -> Values:
    return _read("json", body, name, *(types or (JSON,)), **fields)


def _form(body: str | bytes, name: str = "user", *types: str) -> Values:
    return _read("form", body, name, *(types or (FORM,)))


def _read(kind: str, body: str | bytes, name: str, *types: str, **fields: str) -> Values:
    headers = CIMultiDict([("Content-Type", one) for one in types])
    headers.extend({key.replace("_", "-"): value for key, value in fields.items()})
    data = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
    return compile_body_value(kind, name)(data, headers)


@pytest.mark.parametrize(
    ("body", "name", "value"),
    [
        ('{"user": "ann", "password": "x"}', "user", "ann"),
        (' {"user":\n"\\u0061nn"}', "user", "ann"),
        ('{"user": 17}', "user", "17"),
        ('{"user": ""}', "user", ""),
        ('{"a": {"b": {"c": "d"}}}', "a.b.c", "d"),
        ('{"a": [{"b": "c"}]}', "a.b", None),
        ('{"a.b": "c"}', "a.b", None),
        ('{"user": true}', "user", None),
        ('{"user": null}', "user", None),
        ('{"user": 1.5}', "user", None),
        ('{"user": ["ann"]}', "user", None),
        ('{"user": {"a": 1}}', "user", None),
        ('{"other": 1, "other": 2}', "user", None),
        ("{}", "user", None),
        ("[]", "user", None),
        ('"user"', "user", None),
        ("", "user", None),
        ('{"user": "ann"', "user", None),
        ('{"user": NaN}', "user", None),
        ("{'user': 'ann'}", "user", None),
        ("[" * 60_000, "user", None),
        ('{"user": ' + "9" * 5_000 + "}", "user", None),
        (b'{"user": "\xff"}', "user", None),
        ('{"user": "ann"}'.encode("utf-16"), "user", None),
        (b'\xef\xbb\xbf{"user": "ann"}', "user", None),
    ],
)
def test_a_member_of_json(body: str | bytes, name: str, value: Values) -> None:
    """Text or a whole number; anything else, and what is no JSON in UTF-8, is missing."""
    assert _json(body, name) == value


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ('{"user": "ann", "user": "bob"}', "user"),
        ('{"user": "ann", "user": "ann"}', "user"),
        ('{"user": "ann", "us\\u0065r": "bob"}', "user"),
        ('{"user": "ann", "USER": "bob"}', "user"),
        ('{"User": "ann"}', "user"),
        ('{"u\\u017fer": "ann"}', "user"),
        ('{"a": {"b": 1}, "a": {"b": 2}}', "a.b"),
        ('{"a": {"b": 1}, "A": {}}', "a.b"),
    ],
)
def test_a_name_that_occurs_twice(body: str, name: str) -> None:
    """One decoder takes the first, another the last, and Go's ignores the case."""
    assert _json(body, name) is AMBIGUOUS


@pytest.mark.parametrize(
    ("body", "name", "value"),
    [
        ("user=ann&password=x", "user", "ann"),
        ("%75ser=%61nn", "user", "ann"),
        ("user=a+b%20c", "user", "a b c"),
        ("user=ann&user=ann", "user", "ann"),
        ("password=x", "user", None),
        ("", "user", None),
        ("user=", "user", ""),
        (b"user=\xff", "user", "\udcff"),
        ("user=ann&user=bob", "user", AMBIGUOUS),
        ("user=ann&USER=bob", "user", AMBIGUOUS),
        ("user[]=ann", "user", AMBIGUOUS),
        ("x=1;user=ann", "user", AMBIGUOUS),
    ],
)
def test_a_field_of_a_form(body: str | bytes, name: str, value: Values) -> None:
    """As in a query."""
    assert _form(body, name) == value


@pytest.mark.parametrize(
    ("types", "is_read"),
    [
        (["application/json"], True),
        (["Application/JSON"], True),
        (['application/json; charset="UTF-8"'], True),
        (["application/vnd.api+json"], True),
        (["application/json", "application/json"], True),
        (["application/json; charset=utf-16"], False),
        (["application/json, text/plain"], False),
        (["application/jsonp"], False),
        (["text/json"], False),
        ([FORM], False),
        (["multipart/form-data; boundary=x"], False),
        ([""], False),
    ],
)
def test_the_type_must_be_announced(types: list[str], is_read: bool) -> None:
    """Another one is missing, as is none; two that differ are ambiguous."""
    assert _json('{"user": "ann"}', "user", *types) == ("ann" if is_read else None)
    assert _read("json", '{"user": "ann"}', "user") is None
    assert _json("{}", "user", JSON, FORM) is AMBIGUOUS
    assert _json('{"user": "ann"}', content_encoding="gzip") is None
    assert _json('{"user": "ann"}', content_encoding="identity") == "ann"


def test_other_kinds_are_no_bodies() -> None:
    """A mistake of the program."""
    with pytest.raises(ValueError, match="xml"):
        compile_body_value("xml", "user")


@given(st.text(max_size=30), st.booleans())
def test_any_value_is_found(value: str, is_ascii: bool) -> None:
    """However it is escaped."""
    assert _json(json.dumps({"a": 1, "user": value}, ensure_ascii=is_ascii)) == value
    assert _form(f"a=1&user={quote_plus(value)}") == value


@given(st.binary(max_size=60))
def test_no_body_is_an_error(body: bytes) -> None:
    """Whatever clients send."""
    for found in (_json(body), _form(body)):
        assert found is None or found is AMBIGUOUS or isinstance(found, str)
