"""Where a token is, and what its claims make of a request; keys of all words together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.base.errors import BadRequestError
from gateway.net.tls.peer import ClientCertificate
from gateway.routing.claims import compile_claim, compile_token
from gateway.routing.keys import REJECT, Key, KeyFunction, Readers, compile_key
from gateway.routing.path_parameter import compile_path_parameter
from gateway.routing.secret_key import KeyHash, hashed
from gateway.routing.values import AMBIGUOUS, Values, compile_read

AUTHORIZATION = "header:authorization"


@dataclass(frozen=True)
class Request:
    """The parts of a request that keys are made from."""

    client_key: str = "203.0.113.7"
    client: str = "203.0.113.7"
    is_from_proxy: bool = False
    host: str = "a.test"
    method: str = "GET"
    path: str = "/users/7"
    query: str = ""
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    client_certificate: ClientCertificate | None = None


def _claims(token: str) -> Mapping[str, str]:
    """Of a good token, one that begins with `good.`."""
    return {"sub": token.removeprefix("good.")} if token.startswith("good.") else {}


def _read(word: str, *lines: tuple[str, str], name: str = "sub") -> Values:
    return compile_claim(word, _claims, name)(Request(headers=CIMultiDict(lines)))


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ([("Authorization", "Bearer good.a")], "a"),
        ([("Authorization", "bEARER  good.a ")], "a"),
        ([("Authorization", "Bearer good.a"), ("authorization", "bearer good.a")], "a"),
        ([("Authorization", "Bearer good.a"), ("authorization", "Bearer good.b")], AMBIGUOUS),
        ([("Authorization", "Bearer bad")], ""),
        ([("Authorization", "Basic good.a")], ""),
        ([("Authorization", "good.a")], ""),
        ([("Authorization", "Bearer")], ""),
        ([], None),
    ],
)
def test_the_token_after_bearer(lines: list[tuple[str, str]], value: Values) -> None:
    """One token, in one field, by its scheme in any case."""
    assert _read(AUTHORIZATION, *lines) == value


def test_a_token_in_another_header_or_cookies() -> None:
    """A header has it bare; of several cookies each counts, and a bad one is like an empty one."""
    assert _read("header:x-token", ("X-Token", " good.a ")) == "a"
    assert _read("header:x-token", ("X-Token", "Bearer good.a")) == ""
    assert _read("cookie:t", ("Cookie", "t=good.a; t=good.b")) == ["a", "b"]
    assert _read("cookie:t", ("Cookie", "t=good.a; t=bad")) == ["a", ""]
    assert _read("cookie:t", ("Cookie", "x=1")) == ""
    key = compile_key(
        ["jwt:sub"],
        if_missing="reject",
        route="r",
        readers={"jwt": partial(compile_claim, "cookie:t", _claims)},
    )
    two = Request(headers=CIMultiDict({"Cookie": "t=good.a; t=bad"}))
    assert key(two) is REJECT


def test_a_claim_that_a_token_lacks() -> None:
    """It is missing."""
    assert _read(AUTHORIZATION, ("Authorization", "Bearer good.a"), name="tenant") == ""


def test_the_token_itself() -> None:
    """For whoever wants to know what became of it."""
    read = compile_token(AUTHORIZATION)
    assert read(Request(headers=CIMultiDict({"Authorization": "Bearer x.y.z"}))) == "x.y.z"
    assert read(Request()) is None


# The key space.

READERS: Readers = {
    "path": partial(compile_path_parameter, "/{a}/{b}"),
    "jwt": lambda name: compile_read(f"header:claim-{name}"),
}
VALUES = st.one_of(
    st.text(min_size=1, max_size=8),
    st.text("a:|=%{}+,\\\"' ", min_size=1, max_size=8),
    st.text("ab", min_size=110, max_size=140),
    st.sampled_from(
        [
            *("x|route=y", "ip=1", "path:a=b", "jwt:sub=a", "a|path:b=c", "hmac:" + "0" * 32),
            *("header:a=1|header:b=2", "203.0.113.7", "all", "%7C", "%~"),
        ]
    ),
)


def _escaped(value: str) -> str:
    return quote(value, safe="", errors="surrogatepass")


def _fields(name: str, value: str) -> Request:
    return Request(headers=CIMultiDict({name: value}))


MADE: Mapping[str, Callable[[str], Request]] = {
    "ip": lambda value: Request(client_key=value),
    "host": lambda value: Request(host=value),
    "method": lambda value: Request(method=value),
    "route": lambda _: Request(),
    "header:a": partial(_fields, "a"),
    "header:authorization": partial(_fields, "authorization"),
    "cookie:a": lambda value: _fields("cookie", f"a={_escaped(value)}"),
    "query:a": lambda value: Request(query=f"a={_escaped(value)}"),
    "path:a": lambda value: Request(path=f"/{_escaped(value)}/x"),
    "path:b": lambda value: Request(path=f"/x/{_escaped(value)}"),
    "jwt:sub": partial(_fields, "claim-sub"),
    "jwt:a.b": partial(_fields, "claim-a.b"),
    "client_cert:subject": lambda value: Request(
        client_certificate=ClientCertificate(value, "", "")
    ),
}
"""A request in which a word has a value."""


def _key(word: str, value: str, *, is_secret: bool) -> Key | None:
    """The key of such a request; None if there is no such request."""
    if word == "ip" and not value.replace(".", "").isalnum():
        return None
    key: KeyFunction = compile_key([word], if_missing="shared", route="r", readers=READERS)
    if is_secret:
        key = hashed(key, KeyHash("0123456789abcdef"))
    try:
        return key(MADE[word](value))
    except BadRequestError:
        return None


@given(
    st.tuples(st.sampled_from([*MADE]), VALUES),
    st.tuples(st.sampled_from([*MADE]), VALUES),
    st.booleans(),
)
def test_the_key_space_is_free_of_collisions(
    one: tuple[str, str], other: tuple[str, str], is_secret: bool
) -> None:
    """Two words, or two values of a word, never have one key, hashed or not."""
    keys = [_key(*pair, is_secret=is_secret) for pair in (one, other)]
    assume(all(isinstance(key, str) for key in keys))
    if keys[0] == keys[1]:
        assert one[0] == other[0]
        same = {one[1], other[1]}
        is_constant = one[0] == "route"
        # Credentials have blanks around them, and a scheme whose case does not count.
        credentials = {" ".join(value.lower().split()) for value in same}
        assert is_constant or len(same) == 1 or (one[0] == AUTHORIZATION and len(credentials) == 1)
