"""The changes of a route to requests and responses, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gateway.config.models.cors import ANY, CorsConfig
from gateway.config.models.gateway import ErrorPage, FieldEdits, RouteConfig
from gateway.config.values.units import format_size
from gateway.config.values.words import join
from gateway.config.values.written import show_field
from gateway.http.editing.template import Template


def explain_changes(route: RouteConfig) -> Iterator[str]:
    """Describe what is changed in messages."""
    if route.strip_prefix is not None and route.add_prefix is not None:
        yield (
            f"{route.strip_prefix} at the beginning of their path is replaced by "
            f"{route.add_prefix}."
        )
    elif route.strip_prefix is not None:
        yield f"{route.strip_prefix} is removed from the beginning of their path."
    elif route.add_prefix is not None:
        yield f"{route.add_prefix} is added before their path."
    elif route.rewrite is not None:
        yield f"Their path is rewritten to {route.rewrite}; the query stays."
    if route.upstream_host == "target":
        yield "The upstream receives its own host, not the one that the client requested."
    elif route.upstream_host != "client":
        yield f"The upstream receives the host {route.upstream_host}."
    yield from _edits("Requests", route.request_headers)
    yield from _edits("Answers", route.response_headers)
    if route.max_body is not None:
        size = format_size(route.max_body) if route.max_body else "any size"
        yield f"Their bodies may have {'up to ' if route.max_body else ''}{size}."

    if route.upstream_limits in _LIMITS:
        yield _LIMITS[route.upstream_limits]
    if route.cors is not None:
        yield _cors(route.cors)
    if "error_pages" in route.model_fields_set:
        if route.error_pages is None:
            yield "Errors are problem documents."
        yield from explain_pages(route.error_pages)


_LIMITS: Final = {
    "keep": "If the upstream reports limits of its own, these are sent instead of the gateway's.",
    "merge": "Limits that the upstream reports are sent together with the gateway's.",
}


def _cors(cors: CorsConfig) -> str:
    pages = "Pages of any site" if ANY in cors.origins else f"Pages of {join(cors.origins)}"
    cookies = ", also those for requests with cookies" if cors.credentials else ""
    return f"{pages} may read the gateway's own responses{cookies}."


def explain_own(route: RouteConfig) -> str:
    """Describe what happens to requests that go to no upstream."""
    if route.redirect is not None:
        kept = ", query included" if route.redirect.keep_query else ", without their query"
        kept = "" if "?" in route.redirect.to else kept
        return f"are redirected to {route.redirect.to}{kept} ({route.redirect.status})"
    respond = route.respond
    if respond is None or not respond.body:
        return f"are answered with {respond.status if respond else 200} and no body"
    size = format_size(len(respond.body.encode()))
    return f"are answered with {respond.status} and {size} of {respond.type}"


def explain_pages(pages: Mapping[str, ErrorPage] | None) -> Iterator[str]:
    """Describe the forms of errors."""
    if pages is None:
        return
    yield "Errors are a problem document, a page or a line of text, whichever the client accepts."
    if pages:
        yield f"There are custom pages for {join(list(pages))}."
    intercepted = [status for status, page in pages.items() if page.intercept]
    if intercepted:
        yield f"Those for {join(intercepted)} also replace responses of upstreams."


def _edits(what: str, edits: FieldEdits) -> Iterator[str]:
    said = []
    if edits.set:
        fields = [_field(name, value) for name, value in edits.set.items()]
        said.append(f"get {', '.join(fields)}")
    if edits.add:
        fields = [_field(name, value) for name, value in edits.add.items()]
        said.append(f"get {', '.join(fields)} in addition")
    if edits.remove:
        said.append(f"lose {', '.join(edits.remove)}")
    if said:
        yield f"{what} {'; they '.join(said)}."


def _field(name: str, value: Template) -> str:
    """Return a field as it is written; one with a variable may be shown, whatever its name."""
    is_constant = "${" not in value.text and not value.names
    return show_field(name, value.text if is_constant else "", value.text)
