"""The segments of paths that stand for parameters of patterns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.base.errors import BadRequestError
from gateway.routing.keys import compile_key
from gateway.routing.path_parameter import compile_path_parameter, parameters_of
from gateway.routing.table import Pattern, RouteTable
from gateway.routing.values import AMBIGUOUS, Values

PATTERN = "/users/{id}/**"
READERS = {"path": partial(compile_path_parameter, PATTERN)}
TABLE = RouteTable([(Pattern(None, PATTERN), "users"), (Pattern(None, "/**"), "others")])


@dataclass(frozen=True)
class Request:
    """The parts of a request that keys are made from."""

    path: str
    client_key: str = "203.0.113.7"
    client: str = "203.0.113.7"
    is_from_proxy: bool = False
    host: str = "a.test"
    method: str = "GET"
    query: str = ""
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)
    client_certificate: None = None


def _value(path: str, name: str = "id", pattern: str = PATTERN) -> Values:
    return compile_path_parameter(pattern, name)(Request(path))


def test_the_parameters_of_a_pattern() -> None:
    """Each name has the index of its segment."""
    assert parameters_of("/{tenant}/users/{id}/**") == {"tenant": 0, "id": 2}
    assert parameters_of("/**") == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/users/7", "7"),
        ("/users/7/", "7"),
        ("/users/7/orders/8", "7"),
        ("/users/a.b~c", "a.b~c"),
        ("/users/%41%2e%7E", "A.~"),
        ("/users/%c3%a9/x", "é"),
        ("/users/%C3%A9", "é"),
        ("/users/%ff", "\udcff"),
        ("/users/a%20b", "a b"),
        ("/users/a%3Fb%23", "a?b#"),
        ("/users/%2541", "%41"),
        ("/users/7/a%2Fb;v=1//c", "7"),
        ("/users/7/a/../b", "7"),
    ],
)
def test_a_segment_has_one_value_in_all_its_spellings(path: str, value: str) -> None:
    """Escapes that servers decode alike are decoded, and what follows the segment is nothing."""
    assert _value(path) == value


@pytest.mark.parametrize(
    "path",
    [
        "/users/a%2Fb",
        "/users/a%2fb/c",
        "/users/a;v=1",
        "/users/a;/x",
        "/users/b/../a",
        "/users/./a",
    ],
)
def test_a_segment_that_can_be_read_in_several_ways(path: str) -> None:
    """One server decodes a slash, or cuts off what follows a semicolon, and another does not."""
    assert _value(path) is AMBIGUOUS


def test_a_name_that_the_pattern_lacks() -> None:
    """It is an error when the key is compiled."""
    with pytest.raises(ValueError, match=r"no parameter \{user\}"):
        compile_path_parameter(PATTERN, "user")


_segments = st.text(min_size=1, max_size=8).filter(lambda text: text.isprintable())


@given(_segments, _segments)
def test_different_segments_have_different_keys(one: str, other: str) -> None:
    """However they are escaped, two segments have one key only if they are the same."""
    key = compile_key(["path:id"], if_missing="reject", route="r", readers=READERS)
    found = []
    for text in (one, other):
        path = f"/users/{quote(text, safe='')}"
        try:
            assume(TABLE.find("", path, "GET", {}) == "users")  # type: ignore[arg-type]
        except BadRequestError:
            assume(False)
        found.append(key(Request(path)))
    assume(AMBIGUOUS not in found)
    assert (found[0] == found[1]) == (one == other)


@given(st.text("abZ09-._~", min_size=1, max_size=6), st.data())
def test_needless_escapes_make_no_new_key(text: str, data: st.DataObject) -> None:
    """A client gets no fresh limit by escaping letters."""
    assume(text.strip("."))
    spelled = "".join(
        data.draw(st.sampled_from([one, f"%{ord(one):02X}", f"%{ord(one):02x}"])) for one in text
    )
    key = compile_key(["path:id"], if_missing="reject", route="r", readers=READERS)
    assert key(Request(f"/users/{spelled}/x")) == f"path:id={text}"
