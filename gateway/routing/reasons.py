"""Why a request takes one route and not another, in words.

For people who ask about one request; the routes themselves are found by `table`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from gateway.base.errors import BadRequestError
from gateway.routing.conditions import by_certificate, by_cookie, by_sender
from gateway.routing.fields import Fields
from gateway.routing.lists import Lists
from gateway.routing.pattern import Pattern
from gateway.routing.request_view import RequestView
from gateway.routing.sender import Sender
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
    "has more conditions",
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
        condition: `host`, `path`, `methods`, `headers`, `client`, `cookies` or `client_cert`.
        text: the end of a sentence that begins with the route: `is for host api.example.com`.
    """

    condition: str
    text: str


def why_not(pattern: Pattern, request: RoutedRequest) -> Mismatch | None:
    """Return the first condition of a route that a request does not meet; None if it meets all.

    What it requires of the client is for `why_not_from`.
    """
    nothing = Pattern(None, _ANY_PATH)
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


def why_not_from(sender: Sender, request: RequestView, lists: Lists) -> Mismatch | None:
    """Return the first condition of a route on clients that a request does not meet.

    Args:
        sender: the conditions.
        request: the request.
        lists: the lists that they name.
    """
    if sender.clients and not by_sender(Sender(sender.clients), lists)(request):
        named = [f"list {one}" if isinstance(one, str) else str(one) for one in sender.clients]
        return Mismatch("client", f"is for clients in {' or '.join(named)} only")
    for name, value in sender.cookies:
        if not by_cookie(name, value)(request):
            wanted = "a cookie" if value == ANY else "another value of the cookie"
            return Mismatch("cookies", f"requires {wanted} {name}")
    for name, value in sender.certificate:
        if request.client_certificate is None:
            return Mismatch("client_cert", "requires a client certificate")
        if not by_certificate([(name, value)])(request):
            return Mismatch("client_cert", f"requires a client certificate with another {name}")
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
