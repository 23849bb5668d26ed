"""The value of a claim in the token of a request.

A token that is not accepted is no token: whoever sends it is treated like a client without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gateway.routing.request_view import RequestView
from gateway.routing.values import Read, Values, compile_read

AUTHORIZATION: Final = "header:authorization"
BEARER: Final = "bearer "
"""The scheme, as `values` returns it (RFC 6750, section 2.1)."""


def compile_claim(
    word: str, claims_of: Callable[[str], Mapping[str, str]], name: str
) -> Callable[[RequestView], Values]:
    """Return a function that reads a claim.

    Args:
        word: where the token is: `header:authorization`, or another header or cookie.
        claims_of: returns the claims of a token; empty if it is not accepted.
        name: the name of the claim.
    """
    read_token = compile_token(word)

    def claim(token: str) -> str:
        return claims_of(token).get(name, "") if token else ""

    def read(request: RequestView) -> Values:
        return _each(read_token(request), claim)

    return read


def compile_token(word: str) -> Read:
    """Return a function that reads the token itself; `word` as in `compile_claim`."""
    read_value = compile_read(word)
    token_in: Callable[[str], str] = _bearer if word == AUTHORIZATION else _bare

    def read(request: RequestView) -> Values:
        return _each(read_value(request), token_in)

    return read


def _each(values: Values, make: Callable[[str], str]) -> Values:
    """Return what is made of a value, or of each of several."""
    if isinstance(values, str):
        return make(values)
    return list(map(make, values)) if isinstance(values, list) else values


def _bearer(credentials: str) -> str:
    return credentials[len(BEARER) :].strip() if credentials.startswith(BEARER) else ""


def _bare(value: str) -> str:
    return value.strip()
