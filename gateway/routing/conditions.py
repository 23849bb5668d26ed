"""Conditions on requests, for routes and policies.

Clients write most of a request, so it matters what a condition does if it holds in some readings of
the request only: for one of several values of a cookie, for one of the paths that an upstream may
see. Where it gives more, as exceptions and routes do, it holds only if it holds in every reading.
Where it gives less, it holds if it holds in any: `in_doubt` is what becomes of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final

from gateway.base.errors import BadRequestError
from gateway.routing.keys import SKIP, Key
from gateway.routing.lists import Lists, RequestList, compile_members
from gateway.routing.pattern import Pattern
from gateway.routing.request_view import Condition, RequestView
from gateway.routing.sender import Sender
from gateway.routing.table import RouteTable
from gateway.routing.values import Ambiguity, compile_read
from gateway.routing.wildcard import compile_value

ORIGIN: Final = "Origin"
REQUESTED_METHOD: Final = "Access-Control-Request-Method"


def is_preflight(request: RequestView) -> bool:
    """Return whether a browser asks if a page of another origin may make a request (CORS).

    Source: Fetch Standard, "CORS-preflight request".
    """
    return request.method == "OPTIONS" and all(
        len(lines := request.headers.getall(name, ())) == 1 and lines[0].strip()
        for name in (ORIGIN, REQUESTED_METHOD)
    )


def may_be_preflight(request: RequestView) -> bool:
    """Return whether a server may take it for one, with several values of a field."""
    return request.method == "OPTIONS" and all(
        any(line.strip() for line in request.headers.getall(name, ()))
        for name in (ORIGIN, REQUESTED_METHOD)
    )


def any_of(conditions: Sequence[Condition]) -> Condition:
    """Return the condition that one of several holds."""
    if len(conditions) == 1:
        return conditions[0]
    return lambda request: any(condition(request) for condition in conditions)


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return the condition that all of several hold."""
    if len(conditions) == 1:
        return conditions[0]
    return lambda request: all(condition(request) for condition in conditions)


def in_any(lists: Sequence[RequestList], *, in_doubt: bool = False) -> Condition:
    """Return the condition that a request is in one of the lists."""
    if not in_doubt:
        return any_of([each.has for each in lists])

    def matches(request: RequestView) -> bool:
        try:
            return any(each.may_have(request) for each in lists)
        except BadRequestError:
            return True

    return matches


def by_patterns(patterns: Sequence[Pattern], *, in_doubt: bool = False) -> Condition:
    """Return the condition that host, path, method and header fields match one of the patterns."""
    table = RouteTable([(pattern, True) for pattern in patterns])

    def matches(request: RequestView) -> bool:
        path = request.path if request.path != "*" else "/"
        try:
            return bool(table.find(request.host, path, request.method, request.headers))
        except BadRequestError:
            # It depends on who reads it.
            return in_doubt

    return matches


def by_cookie(name: str, value: str, *, in_doubt: bool = False) -> Condition:
    """Return the condition that a cookie has a value, which may have `*` in it."""
    read, is_meant = compile_read(f"cookie:{name}"), compile_value(value)

    def matches(request: RequestView) -> bool:
        found = read(request)
        if not found or isinstance(found, Ambiguity):
            return in_doubt and bool(found)
        values = map(is_meant, found if isinstance(found, list) else [found])
        return any(values) if in_doubt else all(values)

    return matches


def by_certificate(details: Iterable[tuple[str, str]]) -> Condition:
    """Return the condition that a client's certificate has these details: `subject` and so on."""
    wanted = [(attrgetter(name), compile_value(value)) for name, value in details]

    def matches(request: RequestView) -> bool:
        certificate = request.client_certificate
        return certificate is not None and all(
            is_meant(read(certificate)) for read, is_meant in wanted
        )

    return matches


def by_sender(sender: Sender, lists: Lists, *, in_doubt: bool = False) -> Condition:
    """Return the condition that all that is required of the client holds.

    Args:
        sender: at least one condition.
        lists: the lists that it names.
        in_doubt: the result where it holds in some readings of the request only.
    """
    found: list[Condition] = []
    if sender.clients:
        found.append(in_any(compile_members(sender.clients, lists), in_doubt=in_doubt))
    found += [by_cookie(name, value, in_doubt=in_doubt) for name, value in sender.cookies]
    if sender.certificate:
        found.append(by_certificate(sender.certificate))
    return all_of(found)


def unless(is_exempt: Condition, key: Callable[[RequestView], Key]) -> Callable[[RequestView], Key]:
    """Return a key function that does not count the requests of a condition."""
    return lambda request: SKIP if is_exempt(request) else key(request)
