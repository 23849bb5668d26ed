"""What a request says of the header, cookie, query parameter or certificate that it is counted by.

Of several different values one server takes the first and another the last, so a request that
has them says nothing certain: that is not the same as saying nothing. Names are compared as
servers may compare them: where another reading of the request finds another value, it is in
doubt as well.

Cookies are different: browsers send one name twice where it was set for two paths or domains.
All their values are given, up to four.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import Final

from gateway.routing.escapes import unescape_form
from gateway.routing.parameters import compile_parameter
from gateway.routing.request_view import RequestView

SEVERAL_MAX: Final = 4
"""Identities that one request may be counted under by one limit."""


class Doubt(Enum):
    """What is found where readings of a request differ."""

    AMBIGUOUS = "ambiguous"


AMBIGUOUS: Final = Doubt.AMBIGUOUS

Values = str | list[str] | Doubt | None
"""One value, or each of several; None or empty text for none."""

Read = Callable[[RequestView], Values]

_LISTS: Final = {
    **dict.fromkeys(("x-forwarded-for", "forwarded", "via"), ", "),
    **dict.fromkeys(("accept", "accept-encoding", "accept-language", "cache-control"), ", "),
    # HTTP/2 clients may send it in pieces (RFC 9113, section 8.2.3).
    "cookie": "; ",
}
"""Fields whose lines are parts of one value (RFC 9110, section 5.3), and what joins these."""

_FOLDED: Final = "[_. \\[]"
"""What PHP takes for `_` in names of parameters and cookies."""


def compile_read(word: str) -> Read:
    """What reads the value of `header:name` or the like.

    Raises:
        ValueError: the word says no value.
    """
    kind, _, name = word.partition(":")
    if not name or kind not in _READERS:
        raise ValueError(f"{word!r} is no key word")
    return _READERS[kind](name)


def _one_of(values: Sequence[str]) -> Values:
    if not values:
        return None
    first = values[0]
    if len(values) > 1 and any(value != first for value in values):
        return AMBIGUOUS
    return first


def _header(name: str) -> Read:
    name = name.lower()
    if name == "authorization":
        return _authorization
    if name == "host":
        # Of which case and port are no part, and which the target may name.
        return lambda request: request.host
    separator = _LISTS.get(name)
    if separator is not None:
        return lambda request: separator.join(request.headers.getall(name, ()))

    def read(request: RequestView) -> Values:
        return _one_of(request.headers.getall(name, ()))

    return read


def _authorization(request: RequestView) -> Values:
    """Read the credentials; their scheme is the same in upper and lower case (RFC 9110, 11.1)."""
    return _one_of([_credentials(line) for line in request.headers.getall("authorization", ())])


def _credentials(line: str) -> str:
    scheme, _, rest = line.partition(" ")
    return f"{scheme.lower()} {rest.strip()}".strip()


def _folded(name: str) -> str:
    """A pattern of the names that some server takes for this one."""
    return "".join(_FOLDED if character in "_. [" else re.escape(character) for character in name)


def _cookie(name: str) -> Read:
    # Blanks before a name are found one by one: a run of them must not be walked for each.
    exact = re.compile(rf"(?:^|;)\s*{re.escape(name)}\s*(?:=([^;]*))?(?![^;])").findall
    # Python's cookie parser ends a cookie at a blank; ASP.NET ignores the case of names.
    others = re.compile(rf"(?:^|[;\s]){_folded(name)}\s*=([^;]*)", re.IGNORECASE).findall

    def read(request: RequestView) -> Values:
        lines = request.headers.getall("cookie", ())
        values = list(chain.from_iterable(map(exact, lines))) or [""]
        found: dict[str, None] = {}
        # Each spelling once: a client can repeat it thousands of times.
        for written in dict.fromkeys(chain(values, chain.from_iterable(map(others, lines)))):
            value = _cookie_value(written)
            if value is None:
                return AMBIGUOUS
            found[value] = None
            if len(found) > SEVERAL_MAX:
                return AMBIGUOUS
        given = list(found)
        return given[0] if len(given) == 1 else given

    return read


_find_blank = re.compile(r"\s").search


def _cookie_value(text: str) -> str | None:
    """The value of a cookie; None if servers end it, or read it, in different ways."""
    text = text.strip()
    if text[:1] == '"' and text[-1:] == '"':
        text = text[1:-1]
    elif _find_blank(text):
        return None
    return None if "\\" in text else unescape_form(text)


def _query(name: str) -> Read:
    read_parameter = compile_parameter(name)

    def read(request: RequestView) -> Values:
        query = request.query
        if not query:
            return None
        values = read_parameter(query)
        return AMBIGUOUS if values is None else _one_of(values)

    return read


def _client_certificate(detail: str) -> Read:
    read_detail = attrgetter(detail)

    def read(request: RequestView) -> Values:
        certificate = request.client_certificate
        if certificate is None:
            return None
        value: str = read_detail(certificate)
        return value

    return read


_READERS: Final[dict[str, Callable[[str], Read]]] = {
    "header": _header,
    "cookie": _cookie,
    "query": _query,
    "client_cert": _client_certificate,
}
