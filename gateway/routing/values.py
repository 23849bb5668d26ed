"""The value of the header, cookie, query parameter or certificate that a request is counted by.

Given several different values, one server uses the first and another the last, so such a request is
ambiguous, which is not the same as having no value. Names are compared as servers may compare them:
if another reading of the request finds another value, it is ambiguous as well.

Cookies are different: browsers send a name twice if it was set for two paths or domains. All their
values are returned, up to four.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import chain
from operator import attrgetter
from typing import Final

from gateway.routing.escapes import unescape_form
from gateway.routing.host import normal_host
from gateway.routing.parameters import compile_parameter
from gateway.routing.request_view import RequestView

SEVERAL_MAX: Final = 4
"""Identities that one limit may count one request under."""


class Ambiguity(Enum):
    """The result if readings of a request differ."""

    AMBIGUOUS = "ambiguous"


AMBIGUOUS: Final = Ambiguity.AMBIGUOUS

Values = str | list[str] | Ambiguity | None
"""One value, or each of several; None or empty text for none."""

Read = Callable[[RequestView], Values]

_LISTS: Final = {
    **dict.fromkeys(("x-forwarded-for", "forwarded", "via"), ", "),
    **dict.fromkeys(("accept", "accept-encoding", "accept-language", "cache-control"), ", "),
    # HTTP/2 clients may send it in pieces (RFC 9113, section 8.2.3).
    "cookie": "; ",
}
"""Fields whose lines are parts of one value (RFC 9110, section 5.3), and their separator."""

_FOLDED: Final = "[_. \\[]"
"""Characters that PHP reads as `_` in names of parameters and cookies."""


def compile_read(word: str) -> Read:
    """Return a function that reads the value of `header:name` or the like.

    Raises:
        ValueError: the word does not name a value.
    """
    kind, _, name = word.partition(":")
    if not name or kind not in _READERS:
        raise ValueError(f"{word!r} is not a key word")
    return _READERS[kind](name)


def as_read(word: str, value: str) -> str:
    """Return a value as `compile_read` would find it, so that the two can be compared.

    Raises:
        BadRequestError: a host that is not valid.
    """
    if word == "header:authorization":
        return _credentials(value)
    return normal_host(value) if word == "header:host" else value


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
        # Case and port are not part of it, and the request target may contain it.
        return lambda request: request.host
    separator = _LISTS.get(name)
    if separator is not None:
        return lambda request: separator.join(request.headers.getall(name, ()))

    def read(request: RequestView) -> Values:
        return _one_of(request.headers.getall(name, ()))

    return read


def _authorization(request: RequestView) -> Values:
    """Read the credentials; their scheme is case-insensitive (RFC 9110, 11.1)."""
    return _one_of([_credentials(line) for line in request.headers.getall("authorization", ())])


def _credentials(line: str) -> str:
    scheme, _, rest = line.partition(" ")
    return f"{scheme.lower()} {rest.strip()}".strip()


def _folded(name: str) -> str:
    """Return a pattern of the names that some server treats as this one."""
    return "".join(_FOLDED if character in "_. [" else re.escape(character) for character in name)


def _cookie(name: str) -> Read:
    # Blanks before a name are matched one by one: a run of them must not be rescanned for each.
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
    """Return the value of a cookie; None if servers end or read it in different ways."""
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
