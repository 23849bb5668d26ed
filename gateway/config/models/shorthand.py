"""Expands short forms that combine several parts of a configuration.

- `routes:` by pattern, or several routes under one pattern, becomes a list of routes;
- the URL of an upstream on a route becomes an upstream of that name;
- a limit on a route becomes a policy named after the route, one in a listener a policy named
  after that (`shorthand_listeners`).

Works on plain data, valid or not: the models report what cannot be read. It records where each part
was written, so that problems have their positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gateway.config.models.lists import PREFLIGHT
from gateway.config.models.shorthand_listeners import beside, places
from gateway.config.values.address import is_target, same_target
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.paths import PathError, split_pattern

LINE_FIELDS: Final = ("limit", "limits")
LIMIT_FIELDS: Final = (*LINE_FIELDS, "throttlex")
POLICY_FIELDS: Final = (
    *LIMIT_FIELDS,
    "algorithm",
    "queue",
    "lease",
    "count_refused",
    "count_when",
    "on_limit",
    "on_store_error",
    "consistency",
    "leased",
    "eventual",
    "if_missing",
    "secret",
    "only",
    "except",
    "tier",
    "tiers",
)
"""Keys of a policy that may be written on the route itself."""


class Expanded(NamedTuple):
    """Plain data in long form.

    Attributes:
        data: what the models read.
        origins: paths in `data` whose text was written under another path, and that path.
        findings: problems of the short forms.
        limited: the places in listeners that name policies.
    """

    data: object
    origins: dict[Path, Path]
    findings: list[Finding]
    limited: list[Path]


def is_extension(name: object) -> bool:
    """Return whether a top-level key only holds anchors, as in Compose: `x-limits`."""
    return isinstance(name, str) and name.startswith("x-")


def expand(data: object) -> Expanded:
    """Expand short forms; the given data is not changed."""
    if not isinstance(data, Mapping):
        return Expanded(data, {}, [], [])
    expansion = _Expansion({name: one for name, one in data.items() if not is_extension(name)})
    expansion.run()
    return Expanded(expansion.root, expansion.origins, expansion.findings, expansion.limited)


class _Written(NamedTuple):
    """A route as written: its path in the file, its pattern and its content."""

    origin: Path
    pattern: str | None
    is_alone: bool
    body: object


@dataclass(slots=True)
class _Expansion:
    root: dict[str, Any]
    origins: dict[Path, Path] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    names: dict[str, Path] = field(default_factory=dict)
    given: dict[str, Path] = field(default_factory=dict)
    limited: list[Path] = field(default_factory=list)
    targets: dict[str, str] = field(default_factory=dict)
    """Upstreams that are written as a URL: the first spelling of each, by its normal form."""

    def run(self) -> None:
        if self.root.get("listeners"):
            # Without routes there is nothing to proxy, and no port is opened for it.
            self.root.setdefault("routes", [])
            if not self.root["routes"]:
                self.root.setdefault("listen", [])
        routes = self.root.get("routes")
        if not isinstance(routes, Mapping | list | tuple):
            return
        for section in ("upstreams", "policies"):
            named = self.root.get(section)
            if named is None and section not in self.root:
                self.root[section] = {}
            elif isinstance(named, Mapping):
                self.root[section] = dict(named)
        written = list(_routes(routes))
        self._collect_names(written)
        self._lift_preflight()
        self.root["routes"] = [self._route(index, route) for index, route in enumerate(written)]
        self._listeners()

    def _lift_preflight(self) -> None:
        """Turn the limit of preflight requests into a policy of that name."""
        said, policies = self.root.get(PREFLIGHT), self.root["policies"]
        if said is None or not isinstance(policies, dict):
            return
        if isinstance(said, str) and (said in policies or said == "off"):
            return
        if PREFLIGHT in policies:
            message = f"this limit creates a policy named {PREFLIGHT!r}, which exists already"
            hint = f"write {PREFLIGHT}: {PREFLIGHT} to use it, or rename it"
            self.findings.append(Finding((PREFLIGHT, KEY), message, hint))
            return
        policies[PREFLIGHT] = said
        self.origins["policies", PREFLIGHT] = (PREFLIGHT,)
        self.root[PREFLIGHT] = PREFLIGHT

    def _listeners(self) -> None:
        listeners = self.root.get("listeners")
        if not isinstance(listeners, list | tuple):
            return
        self.root["listeners"] = listeners = [
            dict(one) if isinstance(one, Mapping) else one for one in listeners
        ]
        for path, body, name, usual in places(listeners):
            self._lift_policy(body, path, name, usual)
            self.limited.append(path)
        self.origins.update(beside(listeners))

    def _collect_names(self, written: list[_Written]) -> None:
        """Give each route a name: explicit names first, then names made from patterns."""
        for route in written:
            name = route.body.get("name") if isinstance(route.body, Mapping) else None
            if not isinstance(name, str):
                continue
            if name in self.names:
                message = f"two routes are named {name!r}"
                path = (*route.origin, "name")
                self.findings.append(Finding(path, message, "use a different name for each"))
            self.names[name] = self.given[name] = route.origin

    def _route(self, index: int, written: _Written) -> object:
        origin, body = written.origin, written.body
        self.origins["routes", index] = origin
        if not isinstance(body, Mapping):
            return body
        route: dict[str, Any] = {**body, **self._pattern(index, written)}
        if "name" not in route:
            self.origins["routes", index, "name"] = (*origin, KEY)
            route["name"] = self._default_name(written, route)
        self._lift_upstream(route, origin)
        self._lift_policy(route, origin, route["name"], {})
        return route

    def _pattern(self, index: int, written: _Written) -> dict[str, Any]:
        """Return the path, host and methods of the pattern."""
        if written.pattern is None or not isinstance(written.body, Mapping):
            return {}
        key = (*written.origin, KEY) if written.is_alone else (*written.origin[:-1], KEY)
        try:
            parts = split_pattern(written.pattern)
        except PathError as error:
            self.findings.append(Finding(key, error.message, error.hint))
            return {"path": "/**"}
        said: dict[str, Any] = {"path": parts.path}
        if parts.host is not None:
            said["host"] = parts.host
        if parts.methods:
            said["methods"] = list(parts.methods)
        for name in said:
            if name in written.body:
                hint = f"remove one of the two; the pattern is {written.pattern!r}"
                message = f"the route's pattern already has the {name}"
                self.findings.append(Finding((*written.origin, name, KEY), message, hint))
            self.origins["routes", index, name] = key
        return said

    def _default_name(self, written: _Written, route: dict[str, Any]) -> str:
        name = " ".join(written.pattern.split()) if written.pattern is not None else ""
        if not written.is_alone or not name:
            name = f"{route.get('host') or ''}{route.get('path') or ''}"
            methods = route.get("methods")
            if isinstance(methods, str):
                name = f"{methods} {name}"
            elif isinstance(methods, list | tuple) and methods:
                name = f"{','.join(map(str, methods))} {name}"
        if name in self.given:
            message = f"{name!r} is also the name of another route, which has it from its pattern"
            path = (*self.given[name], "name")
            self.findings.append(Finding(path, message, "use a different name for each"))
        unique, number = name, 1
        while unique in self.names:
            number += 1
            unique = f"{name} #{number}"
        self.names[unique] = written.origin
        return unique

    def _lift_upstream(self, route: dict[str, Any], origin: Path) -> None:
        url = route.get("upstream")
        upstreams = self.root["upstreams"]
        if not isinstance(url, str) or not is_target(url) or not isinstance(upstreams, dict):
            return
        name = route["upstream"] = self.targets.setdefault(same_target(url), url.strip())
        if name not in upstreams:
            upstreams[name] = {"targets": [name]}
            self.origins["upstreams", name] = (*origin, "upstream")

    def _lift_policy(
        self, body: dict[str, Any], origin: Path, name: object, usual: Mapping[str, Any]
    ) -> None:
        """Turn a limit of a route, or of a part of a listener, into a policy."""
        inline: dict[str, Any] = {name: body.pop(name) for name in POLICY_FIELDS if name in body}
        if any(name in inline for name in LIMIT_FIELDS) and _is_cost_of_policy(body.get("cost")):
            inline["cost"] = body.pop("cost")
        if not inline:
            return
        if not any(name in inline for name in LIMIT_FIELDS):
            for word in inline:
                where = "route" if origin[:1] == ("routes",) else "place"
                message = f"{word} requires a limit, and this {where} has none of its own"
                hint = f"add a limit here, or write {word} in the policy"
                self.findings.append(Finding((*origin, word, KEY), message, hint))
            return
        policies = self.root["policies"]
        if isinstance(policies, dict) and isinstance(name, str):
            if name in policies:
                message = f"this limit creates a policy named {name!r}, which exists already"
                said = next(word for word in LIMIT_FIELDS if word in inline)
                hint = "give the route another name, or use the policy by name"
                if origin[:1] != ("routes",):
                    hint = "give that policy another name, or use it by name"
                self.findings.append(Finding((*origin, said, KEY), message, hint))
            else:
                policies[name] = {**usual, **inline}
                self.origins["policies", name] = origin
        named = body.get("policies", [])
        if isinstance(named, str):
            named = [named]
        if isinstance(named, list | tuple):
            body["policies"] = [*named, name]


def at(data: Any, path: Path) -> object:
    """Return the value at a path of plain data; None if there is nothing."""
    for part in path:
        try:
            data = data[part]
        except (LookupError, TypeError):
            return None
    return data


def _routes(routes: Mapping[str, object] | list[object] | tuple[object, ...]) -> Iterator[_Written]:
    if not isinstance(routes, Mapping):
        for index, body in enumerate(routes):
            yield _Written(("routes", index), None, is_alone=False, body=body)
        return
    for pattern, body in routes.items():
        if isinstance(body, list | tuple):
            for index, one in enumerate(body):
                yield _Written(("routes", pattern, index), str(pattern), is_alone=False, body=one)
        else:
            yield _Written(("routes", pattern), str(pattern), is_alone=True, body=body)


def _is_cost_of_policy(value: object) -> bool:
    """Return whether a cost is more than the number that a route may have."""
    return isinstance(value, Mapping) or (isinstance(value, str) and not value.strip().isdigit())
