"""The value of a field in the body of a request: `json:user`, `form:user`.

Only the type that the request announces is read, and only if the body is plain: not compressed, and
in UTF-8. As with queries, the request is ambiguous if servers may find different values: JSON with
a name twice, or in another case (Go's decoder ignores the case of names), and forms with several
values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from gateway.routing.fields import Fields
from gateway.routing.parameters import compile_parameter
from gateway.routing.values import AMBIGUOUS, Ambiguity, Values

BODY_KEYS: Final = ("json", "form")
"""Kinds of key words that name fields of bodies."""

MAX_WHOLE: Final = 2**53
"""From here on, not every whole number has a float of its own."""

_is_json: Final = re.compile(
    r"application/(?:[A-Za-z0-9.!#$&^_+-]+\+)?json(?:\s*;\s*charset=\"?utf-8\"?)?\s*",
    re.IGNORECASE,
).fullmatch
_is_form: Final = re.compile(
    r"application/x-www-form-urlencoded(?:\s*;\s*charset=\"?utf-8\"?)?\s*", re.IGNORECASE
).fullmatch

ReadBody = Callable[[bytes, Fields], Values]
"""Reads a field out of a body, given the header fields of its request."""


class _Object:
    """A JSON object with all its members, however often a name occurs."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def compile_body_value(kind: str, name: str) -> ReadBody:
    """Return a function that reads a field of bodies.

    Args:
        kind: `json` or `form`.
        name: the name of the field; of JSON, names joined by dots for one inside another.

    Raises:
        ValueError: the kind is another one.
    """
    if kind == "json":
        return _json(name)
    if kind == "form":
        return _form(name)
    raise ValueError(f"{kind!r} is not a kind of body")


def _json(name: str) -> ReadBody:
    names = name.split(".")

    def read(body: bytes, headers: Fields) -> Values:
        unread = _unread(headers, _is_json)
        if unread != "":
            return unread
        try:
            found = json.loads(
                body.decode("utf-8"), object_pairs_hook=_Object, parse_constant=_not_json
            )
        except (ValueError, RecursionError):
            return None
        for one in names:
            found = _member(found, one)
            if found is None or found is AMBIGUOUS:
                break
        return _text(found)

    return read


def _member(value: Any, name: str) -> Any:
    """Return the member of an object that every server finds; None if there is none."""
    if not isinstance(value, _Object):
        return None
    folded = name.casefold()
    found = [pair for pair in value.pairs if pair[0].casefold() == folded]
    if not found:
        return None
    return found[0][1] if len(found) == 1 and found[0][0] == name else AMBIGUOUS


def _text(value: Any) -> Values:
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_WHOLE:
        # Another spelling of the same number: 1000.0, 1e3.
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str | Ambiguity) else None


def _form(name: str) -> ReadBody:
    read_parameter = compile_parameter(name)

    def read(body: bytes, headers: Fields) -> Values:
        unread = _unread(headers, _is_form)
        if unread != "":
            return unread
        values = read_parameter(body.decode("utf-8", "surrogateescape"))
        if values is None or len(values) > 1:
            return AMBIGUOUS
        return values[0] if values else None

    return read


def _unread(
    headers: Fields, is_type: Callable[[str], re.Match[str] | None]
) -> Ambiguity | str | None:
    """Return what stands for the value of a body that is not read; empty if it is read."""
    types = {*headers.getall("content-type", ())}
    if len(types) > 1:
        return AMBIGUOUS
    codings = [line.strip().lower() for line in headers.getall("content-encoding", ())]
    if any(coding not in {"", "identity"} for coding in codings):
        return None
    return "" if any(map(is_type, types)) else None


def _not_json(constant: str) -> object:
    """Refuse `NaN` and `Infinity`, which Python would read."""
    raise ValueError(constant)
