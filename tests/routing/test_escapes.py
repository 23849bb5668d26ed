"""Escaping without a step for each escape gives what a step for each would."""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import BadRequestError
from gateway.routing.escapes import PRINTABLE, Escapes, unescape
from gateway.routing.path import readings

UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~"
bytes_of_all_kinds = st.one_of(
    st.binary(), st.lists(st.sampled_from([b"%", b"/", b"a", b"\xff"])).map(b"".join)
)


@given(bytes_of_all_kinds)
def test_what_is_not_kept_is_escaped(data: bytes) -> None:
    """As the standard library does it, of few different bytes and of many."""
    assert Escapes(UNRESERVED).apply(data) == quote(data, safe="")
    every = data + bytes(range(256))
    assert Escapes(UNRESERVED).apply(every) == quote(every, safe="")


@given(bytes_of_all_kinds)
def test_escapes_are_undone(data: bytes) -> None:
    """All that were made, whatever else stands there, in capitals or not."""
    escaped = Escapes(PRINTABLE.translate(None, b"%")).apply(data)
    assert unescape(escaped.encode("ascii")) == data == unquote_to_bytes(escaped)
    whole = "".join(f"%{byte:02x}" for byte in data)
    assert unescape(whole.encode("ascii")) == data


@pytest.mark.parametrize("data", [b"%", b"a%2", b"%zz", b"%\\x41", b"%u0041", b"%-1", b"% 1"])
def test_what_is_no_escape_is_told(data: bytes) -> None:
    """Nothing of Python's own escapes gets through."""
    with pytest.raises(ValueError, match="escape"):
        unescape(data)


def _one_by_one(raw: str) -> str:
    """A path with each escape of a visible character undone, but those of `/ % ? #`."""
    pieces = raw.split("%")
    text = pieces[0]
    for piece in pieces[1:]:
        character = chr(int(piece[:2], 16))
        is_kept = not "!" <= character <= "~" or character in "/%?#"
        text += (f"%{piece[:2].upper()}" if is_kept else character) + piece[2:]
    return text


@given(st.lists(st.one_of(st.integers(0x20, 0xFF).map("%{:02x}".format), st.sampled_from("a/.;~"))))
def test_a_path_is_decoded_escape_by_escape(pieces: list[str]) -> None:
    """The first and the last of `readings` are the path with its escapes undone one by one."""
    raw = "/" + "".join(pieces)
    try:
        seen = readings(raw)
    except BadRequestError:
        return
    assert _one_by_one(raw) in seen
