"""Decides which admin requests are answered. Pure.

A page in a browser can send requests to loopback addresses, and can make its own name point
to one (DNS rebinding). So the `Host` of every request has to be a name of this listener. Machines
are let in: health checkers that speak HTTP/1.0 send no `Host`, which no browser does; and where the
listener is not on a loopback address, health and metrics are for whoever can reach it, by any name.

Any page can also send a POST that changes something, as long as it looks like a form (CSRF). So a
request that changes something has to say that its body is JSON: a browser then asks the listener
for permission first, and gets none. If the browser says that another site has sent it, it is
refused as well.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from gateway.config.values.hosts import read_address

READ: Final = ("GET", "HEAD")
JSON_TYPE: Final = "application/json"

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Header fields of every response of the admin listener."""


class GuardFields(NamedTuple):
    """The header fields of a request that decide whether it is answered; empty if absent.

    Attributes:
        host: `Host`.
        content_type: `Content-Type`.
        origin: `Origin`: the site of the page that sent the request, as its browser says.
        fetch_site: `Sec-Fetch-Site`: how that site is related to this listener.
        needs_host: whether the request's version of HTTP requires a `Host`; HTTP/1.0 does not.
    """

    host: str
    content_type: str = ""
    origin: str = ""
    fetch_site: str = ""
    needs_host: bool = True


class Query(NamedTuple):
    """What a resource may know about the request."""

    accept: str = ""
    body: bytes = b""


class AdminAnswer(NamedTuple):
    """A response.

    Attributes:
        status: the status.
        content_type: media type of the body.
        body: the body, or its parts, which are sent one after the other; the response to HEAD has
            only its length.
        headers: further headers.
    """

    status: int
    content_type: str
    body: bytes | Sequence[bytes]
    headers: Mapping[str, str] = {}


class Resource(NamedTuple):
    """A resource of the listener; other features add theirs.

    Attributes:
        path: the exact path.
        summary: one line for the index.
        answer: makes the response.
        methods: the methods that it has.
        longest_s: how long a response may take, in seconds; 0 for the listener's usual time.
        is_for_all: whether it is for all who can reach a listener that is not on loopback.
    """

    path: str
    summary: str
    answer: Callable[[Query], Awaitable[AdminAnswer]]
    methods: Sequence[str] = READ
    longest_s: float = 0
    is_for_all: bool = False


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> AdminAnswer:
    """Return a problem document (RFC 9457); `detail` is constant text, never the client's."""
    document = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return json_answer(status, document, "application/problem+json", headers)


def json_answer(
    status: int,
    document: Mapping[str, object],
    content_type: str = JSON_TYPE,
    headers: Mapping[str, str] | None = None,
) -> AdminAnswer:
    """Return a JSON document with a line end, for display on terminals."""
    return AdminAnswer(status, content_type, json.dumps(document).encode() + b"\n", headers or {})


def text_answer(text: str) -> AdminAnswer:
    """Return plain text, status 200."""
    return AdminAnswer(HTTPStatus.OK, "text/plain; charset=utf-8", text.encode())


class Mux:
    """Finds the resource for a request, or the response that refuses it.

    Args:
        listen_host: the host of the listener's address.
        names: further host names of the listener; `*.svc` for all names that end in `.svc`.
        resources: the resources; an index is added.
    """

    def __init__(
        self, listen_host: str, names: Iterable[str], resources: Iterable[Resource]
    ) -> None:
        further = {name.lower() for name in names}
        self._names = {"localhost", listen_host.lower(), *further}
        self._endings = tuple(name[1:] for name in further if name.startswith("*."))
        self._is_wildcard = _is_wildcard(listen_host)
        self._is_loopback = _is_loopback(listen_host)
        self._resources = {resource.path: resource for resource in resources}
        self._resources["/"] = Resource("/", "this list", self._index)

    def find(self, method: str, target: str, fields: GuardFields) -> Resource | AdminAnswer:
        """Return the requested resource, or the response that refuses the request.

        Args:
            method: as sent.
            target: the request target as sent; paths are compared without decoding.
            fields: header fields.
        """
        resource = self._resources.get(target.partition("?")[0])
        is_read = method in READ
        if not fields.host and (fields.needs_host or not is_read):
            return problem(400, "The request needs a Host header.")
        if fields.host and not self._is_ours(fields.host):
            is_for_all = is_read and resource is not None and resource.is_for_all
            if self._is_loopback or not is_for_all:
                return problem(421, "The Host header names another server; see admin.hosts.")
        if not target.startswith("/"):
            return problem(400, "The request target must be a path.")
        if resource is None:
            return problem(404, "There is nothing here; GET / lists all resources.")
        if method not in resource.methods:
            detail = "This resource is read-only."
            if "GET" not in resource.methods:
                detail = f"This resource accepts {', '.join(resource.methods)} only."
            return problem(405, detail, {"Allow": ", ".join(resource.methods)})
        return resource if is_read else _unless_foreign(fields) or resource

    def _is_ours(self, host: str) -> bool:
        """Return whether a `Host` is a name of this listener; its port may be that of a tunnel."""
        name = _without_port(host).lower()
        if name in self._names or (self._endings and name.endswith(self._endings)):
            return True
        address = read_address(name)
        if address is None:
            return False
        # A literal address cannot be rebound like a name; so if the listener is on all addresses of
        # the machine, any literal address is accepted.
        return address.is_loopback or self._is_wildcard

    async def _index(self, _query: Query) -> AdminAnswer:
        width = max(map(len, self._resources))
        lines = (
            f"{path:<{width}}  {resource.summary}\n"
            for path, resource in sorted(self._resources.items())
        )
        return text_answer("".join(lines))


def _unless_foreign(fields: GuardFields) -> AdminAnswer | None:
    """Return the refusal of a change that a page of another site could ask a browser to make."""
    is_own = fields.origin in {"", f"http://{fields.host}"}
    if not is_own or fields.fetch_site not in {"", "same-origin", "none"}:
        return problem(403, "A page of another site sent this request.")
    if fields.content_type.partition(";")[0].strip().lower() != JSON_TYPE:
        return problem(415, f"Send the header Content-Type: {JSON_TYPE}.")
    return None


def _is_wildcard(host: str) -> bool:
    address = read_address(host)
    return host == "" if address is None else address.is_unspecified


def _is_loopback(host: str) -> bool:
    address = read_address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _without_port(host: str) -> str:
    """Return the host of `host[:port]`; an IPv6 address without its brackets."""
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name = host
    elif not port.isdecimal():
        return ""
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1]
    return "" if ":" in name else name
