"""Responses of routes that have no upstream, and the formats of errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal

from gateway.base.clock import wall_us
from gateway.base.errors import BadRequestError
from gateway.http.answer import PROBLEM_TYPE, Answer, problem, status_line
from gateway.http.editing.negotiation import preferred
from gateway.http.editing.pages import Page, fill_page
from gateway.http.editing.template import Template, renderer
from gateway.proxy.head import http_date
from gateway.routing.escapes import PRINTABLE, Escapes
from gateway.routing.path import is_plain
from gateway.routing.rewrite import Rewrite

if TYPE_CHECKING:
    from gateway.proxy.request import Request

    DirectResponse = Callable[[Request], Answer]
    Form = Literal["json", "html", "text"]

_OFFERS: Final[dict[Form, tuple[str, ...]]] = {
    "json": ("application/problem+json", "application/json"),
    "html": ("text/html",),
    "text": ("text/plain",),
}
_kept_with_errors: Final = re.compile(
    rb"(?im)^((?:retry-after|www-authenticate|allow|proxy-status):[^\r\n]*)"
).findall
"""Fields of an error that clients act on: a page in its place has them as well."""
_URL: Final = PRINTABLE.translate(None, b' "<>\\^`{|}')
_escape: Final = Escapes(_URL).apply


def redirect(
    status: int,
    template: Template,
    segments: Mapping[str, int],
    check: Rewrite | None,
    *,
    appends_query: bool,
) -> DirectResponse:
    """Redirects the requests of a route.

    Args:
        status: of the response.
        template: of the URL.
        segments: which segment of the path each route parameter in it stands for.
        check: refuses paths whose segments are ambiguous; None if no check is needed.
        appends_query: whether the request's query follows.
    """
    render = renderer(template, _getters(segments))
    needs_host = "host" in template.names

    def answer(request: Request) -> Answer:
        if needs_host and not request.host:
            raise BadRequestError("The request names no host", kind="host")
        if check is not None and not is_plain(request.path):
            # A segment is taken from the path, so it must be unambiguous.
            check.apply(request.path)
        url = render if isinstance(render, bytes) else render(request)
        if appends_query and request.query:
            url += b"?" + request.query.encode("utf-8", "surrogateescape")
        if url.startswith(b"//"):
            # As a reference it would begin with a host (RFC 3986, section 4.2).
            url = b"/" + url.lstrip(b"/")
        return Answer(status, b"Location: %b\r\n" % _without_unsafe(url), b"")

    return answer


def _without_unsafe(url: bytes) -> bytes:
    """Return the URL with invalid characters escaped; existing escapes stay."""
    return _escape(url).encode("ascii") if url.translate(None, _URL) else url


def _getters(segments: Mapping[str, int]) -> dict[str, Callable[[Request], str]]:
    getters: dict[str, Callable[[Request], str]] = {
        "host": lambda request: request.host,
        "path": lambda request: request.path if request.path != "*" else "/",
        "query": lambda request: request.query,
        "scheme": lambda request: request.scheme,
    }
    for name, index in segments.items():
        getters[name] = partial(_segment, index)
    return getters


def _segment(index: int, request: Request) -> str:
    return request.path[1:].split("/")[index]


def intercepted(status: int, fields: bytes) -> Answer:
    """Return the error that replaces an upstream's answer.

    Args:
        status: of the answer.
        fields: its header lines, each after a line end.
    """
    kept = b"".join([b"%b\r\n" % line for line in _kept_with_errors(fields)])
    return problem(status, HTTPStatus(status).phrase, fields=kept)


class ErrorPages:
    """The formats of errors on one route, or where no route is known.

    Args:
        pages: by status, or `4xx` and `5xx`; a status without an entry gets a plain page.

    Attributes:
        intercepted: statuses of upstreams' answers that are replaced.
    """

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._made: dict[tuple[int, Form], tuple[bytes, bytes]] = {}
        self.intercepted = frozenset(
            int(status)
            for status in HTTPStatus
            if status >= 400 and (page := self._page(status)) is not None and page.intercept
        )

    def _page(self, status: int) -> Page | None:
        return self._pages.get(str(status)) or self._pages.get(f"{status // 100}xx")

    def render(self, reply: Answer, request: Request) -> Answer:
        """Return a problem document in the format that the client prefers."""
        if not reply.fields.startswith(PROBLEM_TYPE):
            return reply
        form = preferred(request.headers.getall("Accept", ()), _OFFERS, "json")
        made = self._made.get((reply.status, form))
        if made is None:
            made = self._made[reply.status, form] = self._make(reply.status, form)
        kind, body = made
        fields = (kind or PROBLEM_TYPE) + b"Vary: Accept\r\n" + reply.fields[len(PROBLEM_TYPE) :]
        return Answer(reply.status, fields, body if kind else reply.body)

    def _make(self, status: int, form: Form) -> tuple[bytes, bytes]:
        """Return Content-Type and body; both empty if the problem document stays."""
        page = self._page(status) or Page()
        reason = HTTPStatus(status).phrase
        if form == "json":
            if page.problem is None:
                return b"", b""
            return PROBLEM_TYPE, _fill(page.problem, status, reason)
        if form == "text":
            text = "{status} {reason}\n" if page.text is None else page.text
            return b"Content-Type: text/plain; charset=utf-8\r\n", _fill(text, status, reason)
        html = _PLAIN_PAGE if page.html is None else page.html
        body = _fill(html, status, escape(reason))
        return b"Content-Type: text/html; charset=utf-8\r\n", body


_PLAIN_PAGE: Final = (
    '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
    "<title>{status} {reason}</title>\n<h1>{status} {reason}</h1>\n</html>\n"
)


def _fill(text: str, status: int, reason: str) -> bytes:
    return fill_page(text, status, reason).encode()


def response_head(reply: Answer, connection: bytes = b"", fields: bytes = b"") -> bytes:
    """Return the head of a response generated by the gateway.

    Args:
        reply: the response.
        connection: the header lines that concern the connection.
        fields: further header lines.
    """
    status, own_fields, body = reply
    # RFC 9110, section 8.6: not even a length of 0.
    length = b"" if status == 204 else b"Content-Length: %d\r\n" % len(body)
    return b"%b%b%bDate: %b\r\n%b%b\r\n" % (
        status_line(status),
        own_fields,
        fields,
        http_date(wall_us() // 1_000_000),
        connection,
        length,
    )
