"""Responses of routes that have no upstream, and the formats of errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal

from gateway.base.clock import wall_us
from gateway.base.errors import BadRequestError
from gateway.http.answer import (
    PROBLEM_TYPE,
    THROTTLEX_TYPE,
    Answer,
    plain_refusal,
    problem,
    status_line,
)
from gateway.http.editing.negotiation import preferred
from gateway.http.editing.pages import Facts, Page, fill_html, fill_problem, fill_text
from gateway.http.editing.plain_page import PLAIN_PAGE_FIELDS, plain_page, plain_text
from gateway.http.editing.template import Template, renderer
from gateway.proxy.head import http_date
from gateway.routing.escapes import PRINTABLE, Escapes
from gateway.routing.path import is_plain
from gateway.routing.rewrite import Rewrite

if TYPE_CHECKING:
    from gateway.proxy.request import Request

    DirectResponse = Callable[[Request], Answer]
    Form = Literal["json", "throttlex", "html", "text"]

_OFFERS: Final[dict[Form, tuple[str, ...]]] = {
    "json": ("application/problem+json", "application/json"),
    "html": ("text/html",),
    "text": ("text/plain",),
}
_OFFERS_BY_THROTTLEX: Final[dict[Form, tuple[str, ...]]] = {
    "throttlex": ("application/json",),
    "json": ("application/problem+json",),
    "html": ("text/html",),
    "text": ("text/plain",),
}
_kept_with_errors: Final = re.compile(
    rb"(?im)^((?:retry-after|www-authenticate|allow|proxy-status):[^\r\n]*)"
).findall
"""Fields of an error that clients act on: a page in its place has them as well."""
_retry_after: Final = re.compile(rb"(?im)^retry-after:[ \t]*([0-9]{1,9})[ \t]*\r$").search
_HTML_TYPE: Final = b"Content-Type: text/html; charset=utf-8\r\n"
_NO_STORE: Final = b"Cache-Control: no-store\r\n"
_VARY: Final = b"Vary: Accept\r\n"
KNOWN_MAX: Final = 1024
"""How many pages are cached: one for each time to wait."""
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
        self._made: dict[tuple[int, Form, int | None, bytes], tuple[bytes, bytes]] = {}
        self.intercepted = frozenset(
            int(status)
            for status in HTTPStatus
            if status >= 400 and (page := self._page(status)) is not None and page.intercept
        )

    def _page(self, status: int) -> Page | None:
        return self._pages.get(str(status)) or self._pages.get(f"{status // 100}xx")

    def render(self, reply: Answer, request: Request) -> Answer:
        """Return a problem document, or ThrottleX's, in the format that the client prefers."""
        accept = request.headers.getall("Accept", ())
        found = _retry_after(reply.fields)
        wait = None if found is None else int(found[1])
        if reply.fields.startswith(PROBLEM_TYPE):
            form = preferred(accept, _OFFERS, "json")
            kept = reply.fields[len(PROBLEM_TYPE) :]
        elif reply.fields.startswith(THROTTLEX_TYPE):
            form = preferred(accept, _OFFERS_BY_THROTTLEX, "throttlex")
            kept = reply.fields[len(THROTTLEX_TYPE) :]
            if form == "throttlex":
                return reply._replace(fields=THROTTLEX_TYPE + _VARY + kept)
            kept = _NO_STORE + kept
            # The same for all of its refusals, unlike its own, with a key and the time of day.
            reply = plain_refusal(reply.status, wait)
        else:
            return reply
        known_as = (reply.status, form, wait, reply.body)
        made = self._made.get(known_as)
        if made is None:
            if len(self._made) >= KNOWN_MAX:
                self._made.clear()
            facts = Facts(reply.status, HTTPStatus(reply.status).phrase, _title(reply), wait)
            made = self._made[known_as] = self._make(facts, form)
        kind, body = made
        return Answer(reply.status, (kind or PROBLEM_TYPE) + _VARY + kept, body or reply.body)

    def _make(self, facts: Facts, form: Form) -> tuple[bytes, bytes]:
        """Return the first fields and the body; both empty if the problem document stays."""
        page = self._page(facts.status) or Page()
        if form == "json":
            if page.problem is None:
                return b"", b""
            return PROBLEM_TYPE, fill_problem(page.problem, facts).encode()
        if form == "text":
            text = plain_text(facts) if page.text is None else fill_text(page.text, facts)
            return b"Content-Type: text/plain; charset=utf-8\r\n", text.encode()
        if page.html is None:
            return _HTML_TYPE + PLAIN_PAGE_FIELDS, plain_page(facts).encode()
        return _HTML_TYPE, fill_html(page.html, facts).encode()


def _title(reply: Answer) -> str:
    title: str = json.loads(reply.body)["title"]
    return title


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
