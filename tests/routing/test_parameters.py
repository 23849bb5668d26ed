"""Values of parameters and cookies: found by patterns, and the same that are found one by one."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any
from urllib.parse import unquote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.routing import escapes, parameters, values
from gateway.routing.values import AMBIGUOUS, SEVERAL_MAX, Values, compile_read
from tests.work import counted

NAMES = (
    "key",
    "api_key",
    "s.id",
    "ski",
    "a[b",
    "K",
    "_",
    "\u00e9t\u00e9",
    "a=b",
    "a&b",
    "a;b",
    "x y",
)
SIZE = 16_000

escaped = st.integers(0, 255).map(lambda byte: f"%{byte:02x}") | st.sampled_from(
    ["%4B", "%e2%84%aa", "%C5%BF", "%C4%B0", "%C3%A9", "%C3%89", "%5b", "%3D", "%26", "%3b", "%5C"]
)
pieces = (
    st.sampled_from([*NAMES[:7], "KEY", "api.key", "api%5Fkey", "k%65y", "%6Bey", "%4bEY", "a%3db"])
    | st.sampled_from(
        ["=", "=", "=1", "=2", "&", "&", ";", "; ", "+", "%20", "[", "[]", "%00", "%"]
    )
    | st.sampled_from(
        ["%zz", "%4", "%%", "\\", "\\x41", "\\u0126", "%5Cx26", "1", " ", "\t", '"', "."]
    )
    | escaped
)
texts = st.lists(pieces, max_size=14).map("".join)


class _Asked:
    def __init__(self, query: str, cookies: list[str]) -> None:
        self.query = query
        self.headers = CIMultiDict([("cookie", line) for line in cookies])


def _decoded(text: str) -> str:
    return unquote_plus(text, errors="surrogateescape")


def _folded(name: str) -> str:
    return "".join(r"[_. \[]" if each in "_. [" else re.escape(each) for each in name)


def _query_one_by_one(name: str, query: str) -> Values:
    is_like = re.compile(rf"[ ]*{_folded(name)}(?:[\[\0].*)?", re.IGNORECASE | re.DOTALL).fullmatch
    exact: list[str] = []
    alike: list[str] = []
    for piece in query.split("&"):
        key, _, value = piece.partition("=")
        if _decoded(key) == name:
            exact.append(_decoded(value))
        elif is_like(_decoded(key)):
            alike.append(_decoded(value))
    for piece in re.split("[&;]", query) if ";" in query else ():
        key, _, value = piece.partition("=")
        if is_like(_decoded(key)):
            alike.append(_decoded(value))
    first = exact[0] if exact else None
    if any(value != first for value in exact) or any(value != (first or "") for value in alike):
        return AMBIGUOUS
    return first


def _cookie_value(text: str) -> str | None:
    text = text.strip()
    if text[:1] == '"' and text[-1:] == '"':
        text = text[1:-1]
    elif any(map(str.isspace, text)):
        return None
    return None if "\\" in text else _decoded(text)


def _cookie_one_by_one(name: str, lines: list[str]) -> Values:
    pairs = [pair.partition("=") for line in lines for pair in line.split(";")]
    exact = [value for key, _, value in pairs if key.strip() == name] or [""]
    others = re.compile(rf"(?:^|[;\s]){_folded(name)}\s*=([^;]*)", re.IGNORECASE).findall
    found = list(dict.fromkeys(map(_cookie_value, chain(exact, *map(others, lines)))))
    if None in found or len(found) > SEVERAL_MAX:
        return AMBIGUOUS
    given = [value for value in found if value is not None]
    return given[0] if len(given) == 1 else given


@example("key", "%5Cx26=1&key=1")
@example("ski", "s%E2%84%AA%C4%B0=1")
@example("a&b", "a%26b=1&a&b=2")
@given(st.sampled_from(NAMES), texts)
def test_a_parameter_is_what_all_readings_of_it_say(name: str, query: str) -> None:
    """The value is the same that splitting, decoding and comparing each parameter finds."""
    query = query.replace(" ", "+").replace("\t", "%09")
    asked: Any = _Asked(query, [])
    assert compile_read(f"query:{name}")(asked) == (
        _query_one_by_one(name, query) if query else None
    )


@given(st.sampled_from(NAMES[:7]), st.lists(texts, max_size=3))
def test_a_cookie_is_what_all_readings_of_it_say(name: str, lines: list[str]) -> None:
    """The values are the same that splitting, decoding and comparing each cookie finds."""
    asked: Any = _Asked("", lines)
    assert compile_read(f"cookie:{name}")(asked) == _cookie_one_by_one(name, lines)


@given(texts)
def test_forms_are_decoded_as_elsewhere(text: str) -> None:
    """Escapes, and what only looks like one, mean what they mean to Python's own reader."""
    assert escapes.unescape_form(text) == _decoded(text)


@pytest.mark.parametrize("word", ["query:key", "cookie:key"])
@pytest.mark.parametrize(
    "piece",
    ["%41", "%zz", "%", "a&", "a=%41&", "a; ", "key=1&", "key=1; ", "%6bey=1&", "key;", "+"],
)
def test_many_parameters_are_read_in_a_few_steps(word: str, piece: str) -> None:
    """A hundred times as many escapes, parameters or cookies are no step in Python more."""
    read = compile_read(word)
    lines = []
    for size in (SIZE // 100, SIZE):
        text = piece * (size // len(piece))
        asked: Any = _Asked(text.replace(" ", ""), [text])
        with counted(escapes, parameters, values) as work:
            read(asked)
        lines.append(work.lines)
    assert lines[1] <= lines[0] + 5
