"""Why a request takes one route and not another, in words.

For people who ask about one request; the routes themselves are found by `table`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from gateway.base.errors import BadRequestError
from gateway.routing.fields import Fields
from gateway.routing.pattern import Pattern
from gateway.routing.table import RouteTable
from gateway.routing.wildcard import ANY

_ANY_PATH: Final = "/**"
_PRECEDENCE: Final = (
    "names its host",
    "names more of the host",
    "names its path more exactly",
    "names more of the path",
    "names earlier parts of the path",
    "names methods",
    "has more conditions on header fields",
)
"""What makes one pattern more specific than another, in the order of `Pattern.specificity`."""


class RoutedRequest(NamedTuple):
    """The parts of a request that routes look at.

    Attributes:
        host: in normal form.
        path: in canonical form.
        method: as sent.
        headers: the header fields.
    """

    host: str
    path: str
    method: str
    headers: Fields


class Mismatch(NamedTuple):
    """The condition of a route that a request does not meet.

    Attributes:
        condition: `host`, `path`, `methods` or `headers`.
        text: the end of a sentence that begins with the route: `is for host api.example.com`.
    """

    condition: str
    text: str


def why_not(pattern: Pattern, request: RoutedRequest) -> Mismatch | None:
    """Return the first condition of a route that a request does not meet; None if it meets all."""
    nothing = replace(pattern, host=None, path=_ANY_PATH, methods=(), headers=())
    if not _matches(replace(nothing, host=pattern.host), request):
        return Mismatch("host", f"is for host {pattern.host}")
    if not _matches(replace(nothing, path=pattern.path), request):
        return Mismatch("path", f"is for path {pattern.path}")
    if not _matches(replace(nothing, methods=pattern.methods), request):
        return Mismatch("methods", f"is for {' and '.join(pattern.methods)} only")
    for name, value in pattern.headers:
        if not _matches(replace(nothing, headers=((name, value),)), request):
            # The value may be a secret.
            wanted = "a field" if value == ANY else "another value of the field"
            return Mismatch("headers", f"requires {wanted} {name}")
    return None


def why_before(chosen: Pattern, other: Pattern) -> str:
    """Return why a route is taken before another one that matches as well.

    Returns:
        The end of a sentence that begins with the chosen route.
    """
    for reason, mine, its in zip(_PRECEDENCE, chosen.specificity, other.specificity, strict=True):
        if mine != its:
            return reason
    return "comes first in the file"


def _matches(pattern: Pattern, request: RoutedRequest) -> bool:
    try:
        return RouteTable([(pattern, True)]).match(*request) is not None
    except BadRequestError:
        # It has several values of a field: the whole request is refused for that.
        return False
