"""The normal form of ThrottleX's keys, as in its tables.

A key of one part is the plain value, one of several parts has a label before each, in one order
(low-level design, section 2.1):

    203.0.113.7                per ip
    k-4711                     per api_key
    user:123|route:/v1/pay     per user, route

Different identities never give the same key, although clients choose parts of it: `|`, `%` and
everything that is not printable ASCII are escaped, replacements of missing values have a label, and
a plain value that looks like a labelled one, or like an address, gets its own. Keys longer than 128
bytes end in a hash of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Final

from gateway.routing.escapes import PRINTABLE, Escapes
from gateway.routing.keys import (
    NO_READERS,
    REJECT,
    SKIP,
    UNAUTHORIZED,
    Absence,
    Key,
    KeyFunction,
    Readers,
    combined,
    each,
    reader_of,
)
from gateway.routing.path import counted_path
from gateway.routing.request_view import RequestView
from gateway.routing.values import Ambiguity

_odd: Final = re.compile(r"[^ -$&-z~]").search
_escape_odd: Final = Escapes(PRINTABLE.translate(None, b"%{|}")).apply
_LABELLED: Final = re.compile(r"(ip|api_key|user|route):")

Labelled = tuple[str, str]
"""The label of a part, and its value."""

_Part = Callable[[RequestView], list[Labelled] | Absence | Ambiguity]
"""A part; or several, if a cookie has several values."""


def compile_throttlex_key(
    labels: Sequence[str],
    words: Sequence[str],
    *,
    if_missing: str,
    route: str,
    readers: Readers = NO_READERS,
) -> KeyFunction:
    """Compile a key.

    Args:
        labels: `ip`, `api_key`, `user` and `route`, in ThrottleX's order.
        words: for each, the key word of its value, as in `compile_key`; for `route` that is `path`
            for the path of the request, otherwise the name of its route.
        if_missing: the replacement for a missing value, as in `compile_key`; an address does not
            occur twice in one key.
        route: the name of the route.
        readers: as in `compile_key`.
    """
    parts = [
        _compile_part(label, word, if_missing, route, readers)
        for label, word in zip(labels, words, strict=True)
    ]
    if len(parts) > 1:
        return _joined(parts)
    (label,), (part,) = labels, parts
    if label == "ip":
        return lambda request: request.client_key

    def text(one: Labelled) -> str:
        of, value = one
        if of == label and value and not _LABELLED.match(value) and not _is_address(value):
            return value
        return f"{of}:{value}"

    def single(request: RequestView) -> Key:
        found = part(request)
        return combined([list(map(text, found))]) if isinstance(found, list) else found

    return single


def _compile_part(label: str, word: str, if_missing: str, route: str, readers: Readers) -> _Part:
    if label == "ip":
        return lambda request: [(label, escape(request.client_key))]
    if word == "path":
        return lambda request: [(label, escape(counted_path(request.path)))]
    if label == "route":
        constant = [(label, escape(route))]
        return lambda _: constant
    read = reader_of(word, readers)

    def labelled(value: str, request: RequestView) -> Labelled | Absence:
        if value:
            return label, escape(value)
        match if_missing:
            case "ip":
                return "ip", escape(request.client_key)
            case "shared":
                return label, ""
            case "skip":
                return SKIP
            case "unauthorized":
                return UNAUTHORIZED
        return REJECT

    return lambda request: each(read(request), lambda value: labelled(value, request))


def _joined(parts: Sequence[_Part]) -> KeyFunction:
    def key(request: RequestView) -> Key:
        texts: list[list[str]] = []
        for part in parts:
            found = part(request)
            if not isinstance(found, list):
                return found
            labelled = ["{}:{}".format(*one) for one in found]
            if labelled not in texts:
                texts.append(labelled)
        return combined(texts)

    return key


def escape(value: str) -> str:
    """Return a value without separators, in printable ASCII; one-to-one."""
    if not _odd(value):
        return value
    return _escape_odd(value.encode("utf-8", "surrogatepass"))


def _is_address(value: str) -> bool:
    """Return whether a client that chooses this value would be counted as that address."""
    # Including its scope and its prefix, which a client's address may have here.
    if value[0] not in "0123456789abcdefABCDEF:":
        return False
    try:
        ip_address(value.partition("/")[0])
    except ValueError:
        return False
    return True
