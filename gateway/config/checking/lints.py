"""Routes and pages that are valid but probably do not mean what they seem to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gateway.config.models.gateway import FieldEdits, GatewayConfig
from gateway.config.values.findings import KEY, Finding, Path
from gateway.http.editing.template import VARIABLES
from gateway.routing.table import RouteTable

_is_one_word: Final = re.compile(r"[a-z0-9_-]+").fullmatch
_PARAMETER_ELSEWHERE: Final = re.compile(r"/([:$][A-Za-z_]\w*)(?=/|$)")
# A preceding dollar sign marks a variable of a script.
_BRACES: Final = re.compile(r"(?<![${])\{([a-z_]{2,40})\}(?!\})")


def patterns(config: GatewayConfig, origins: Mapping[Path, Path]) -> Iterator[Finding]:
    """Return patterns that match less than they seem to, or something else.

    Args:
        config: the configuration.
        origins: the paths where its parts were written, as in `Expanded`.
    """
    indexes: dict[str | None, list[int]] = defaultdict(list)
    for index, route in enumerate(config.routes):
        literal = _PARAMETER_ELSEWHERE.search(route.path)
        if literal:
            message = f"{literal[1]} is literal text in a path"
            hint = f"did you mean {{{literal[1][1:]}}}? It stands for any one segment"
            yield Finding(("routes", index, KEY), message, hint)
        host = route.host
        is_of_pattern = ("routes", index, "host") in origins
        if host and is_of_pattern and host != "localhost" and _is_one_word(host):
            meant = f"/{host} or /{host}/**" if route.path == "/" else f"/{host}{route.path}"
            message = f"this is read as the host {host!r} and the path {route.path}"
            hint = f"did you mean {meant}? To match a host, write host: {host} in the route"
            yield Finding(("routes", index, KEY), message, hint)
        else:
            indexes[host].append(index)
    for host, of_host in indexes.items():
        if all(config.routes[index].path == "/" for index in of_host):
            message = "this matches only /, and no other path"
            hint = f"for everything below, write {host or ''}/**"
            yield Finding(("routes", of_host[0], KEY), message, hint)


class _NoFields:
    """The headers of a request that has none."""

    def getall(self, _name: str, default: Sequence[str], /) -> Sequence[str]:
        return default


def redirect_loops(config: GatewayConfig) -> Iterator[Finding]:
    """Return redirects to a path of the same route."""
    table = RouteTable([(route.pattern, index) for index, route in enumerate(config.routes)])
    for index, route in enumerate(config.routes):
        redirect = route.redirect
        path = redirect.to.partition("?")[0] if redirect else ""
        if redirect is None or not path.startswith("/") or "{" in path:
            continue
        # Clients follow with GET, unless the status keeps their method.
        methods = ("GET",) if redirect.status in (301, 302, 303) else route.methods or ("GET",)
        host = (route.host or "").replace("*", "any", 1)
        if any(table.match(host, path, method, _NoFields()) == index for method in methods):
            message = (
                f"{path} is one of the route's own paths: clients would be redirected in a loop"
            )
            hint = f"add a route for {path}, or redirect to another path"
            yield Finding(("routes", index, "redirect", "to"), message, hint)


def bodies_of_refusals(config: GatewayConfig) -> Iterator[Finding]:
    """Return bodies that are the name of a format but are sent as text: `body: json`."""
    for name, policy in config.policies.items():
        body = policy.on_limit.body.strip().lower()
        if body in _FORMS:
            message = f"the body of refusals is the literal text {policy.on_limit.body!r}"
            hint = f"did you mean {_FORMS[body]}? Known: problem (JSON), text, throttlex, none"
            yield Finding(("policies", name, "on_limit", "body"), message, hint)


_FORMS: Final = {
    **dict.fromkeys(("json", "application/json", "problem+json"), "problem"),
    **dict.fromkeys(("plain", "text/plain"), "text"),
    **dict.fromkeys(("off", "empty"), "none"),
    **dict.fromkeys(("html", "text/html"), "problem (error_pages can have HTML)"),
}


def variables_of_responses(config: GatewayConfig) -> Iterator[Finding]:
    """Return what looks like a variable in text that is sent as it is."""
    for index, route in enumerate(config.routes):
        if route.respond is not None:
            for name in dict.fromkeys(_BRACES.findall(route.respond.body or "")):
                if name in VARIABLES:
                    message = f"{{{name}}} is sent as it is: fixed responses have no variables"
                    hint = "response_headers and redirect have variables"
                    yield Finding(("routes", index, "respond", "body"), message, hint)


def fields_of_cors(config: GatewayConfig) -> Iterator[Finding]:
    """Return header edits of a field that `cors` sends, too."""
    for index, route in enumerate(config.routes):
        edits = route.response_headers
        for word, fields in (("set", edits.set), ("add", edits.add)):
            for name in fields:
                if route.cors is not None and name.lower() in _FIELDS_OF_CORS:
                    does = "replaces that" if word == "set" else "is sent beside that"
                    message = f"this {name} {does} of cors"
                    path: Path = ("routes", index, "response_headers", word, name, KEY)
                    yield Finding(path, message, "remove it, or set cors: off in this route")


_FIELDS_OF_CORS: Final = frozenset(
    {"access-control-allow-origin", "access-control-allow-credentials"}
)

_FOREIGN: Final = re.compile(
    r"\$\(?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\)?|%\{?[A-Za-z_]+[^%\s]*[}%]|%\[[^\]]*\]"
)
_FOREIGN_NAMES: Final = {
    "args": "{query}",
    "host": "{host}",
    "http_host": "{host}",
    "query_string": "{query}",
    "remote_addr": "{client_ip}",
    "request_method": "{method}",
    "scheme": "{scheme}",
    "uri": "{path}",
}
"""Variables of nginx, and their names here."""


def foreign_variables(config: GatewayConfig) -> Iterator[Finding]:
    """Return header fields that are sent as another program's variable."""
    for index, route in enumerate(config.routes):
        for direction in ("request_headers", "response_headers"):
            edits: FieldEdits = getattr(route, direction)
            for word, fields in (("set", edits.set), ("add", edits.add)):
                for name, value in fields.items():
                    match = None if value.names else _FOREIGN.fullmatch(value.text)
                    if match is not None:
                        path = ("routes", index, direction, word, name)
                        yield Finding(path, f"{value.text} is sent as it is", _meant(match["name"]))


def _meant(name: str | None) -> str:
    if name is None:
        return f"known variables: {', '.join(f'{{{one}}}' for one in VARIABLES)}, {{header.NAME}}"
    if name.startswith("http_") and name not in _FOREIGN_NAMES:
        return f"did you mean {{header.{name[5:].replace('_', '-')}}}?"
    return f"did you mean {_FOREIGN_NAMES.get(name, f'${{{name}}}')}?"
