"""Routes as they run: everything a request needs once its route is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.models.gateway import GatewayConfig, RouteConfig
from gateway.config.models.routes import retry_of
from gateway.config.values.store_url import capabilities_of
from gateway.http.answer import Answer, LimitFields
from gateway.http.editing.fields import FieldEdit
from gateway.limiter.plan import CompiledPolicy, Plan, ReportedPlan, RouteKeys, compile_plan
from gateway.observe.metrics import GatewayMetrics, RouteMetrics
from gateway.proxy.changes import Outgoing, compile_edit, compile_outgoing
from gateway.proxy.direct_responses import ErrorPages, compile_own, compile_pages
from gateway.proxy.upstream.pool import Upstream
from gateway.proxy.upstream.retry import RetryRule, compile_rule
from gateway.routing.table import Pattern, RouteTable

if TYPE_CHECKING:
    from gateway.proxy.request import Request


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        name: as configured.
        upstream: where its requests go; None if
        own: answers them all.
        plan: the limits they are held to; None if there are none.
        limit_fields: makes the header lines about limits of its answers.
        metrics: its counters.
        websocket: whether WebSockets may be opened.
        retry: when its requests are sent again; None for never.
        max_body: bytes that a request's body may have; None for any.
        outgoing: what is changed of its requests, and
        answer_edit: of the header fields of its answers; None for nothing.
        pages: the forms that errors take; None for problem documents, and
        intercepted: statuses of the upstream's answers that become such errors; None for none.
    """

    name: str
    upstream: Upstream | None
    own: Callable[[Request], Answer] | None
    plan: Plan | None
    limit_fields: LimitFields | None
    metrics: RouteMetrics
    websocket: bool
    retry: RetryRule | None
    max_body: int | None
    outgoing: Outgoing | None
    answer_edit: FieldEdit[Request] | None
    pages: ErrorPages | None
    intercepted: frozenset[int] | None


def compile_routes(
    config: GatewayConfig,
    upstreams: Mapping[str, Upstream],
    policies: dict[str, CompiledPolicy],
    metrics: GatewayMetrics,
) -> RouteTable[Route]:
    """Compile all routes of a configuration into the table to look them up in."""
    entries: list[tuple[Pattern, Route]] = []
    is_reported = capabilities_of(config.store.url).is_gatekeeper
    for route in config.routes:
        plan = None
        if route.policies:
            plan = compile_plan(RouteKeys(route.name), route.policies, config.policies, policies)
            if is_reported:
                plan = ReportedPlan(plan.rules)
        pattern = Pattern(route.host, route.path, route.methods, tuple(route.headers.items()))
        fields = LimitFields(plan.rules) if plan else None
        pages = compile_pages(config, route)
        compiled = Route(
            route.name,
            None if route.upstream is None else upstreams[route.upstream],
            compile_own(route),
            plan,
            fields,
            metrics.route(route.name),
            route.websocket,
            None if route.upstream is None else _retry(route, config, upstreams[route.upstream]),
            config.server.max_body if route.max_body is None else route.max_body or None,
            compile_outgoing(route),
            compile_edit(route.response_headers),
            pages,
            (pages.intercepted or None) if pages is not None else None,
        )
        entries.append((pattern, compiled))
    return RouteTable(entries)


def _retry(route: RouteConfig, config: GatewayConfig, upstream: Upstream) -> RetryRule | None:
    """What a route says of retries, and for the rest what its upstream says."""
    rule = compile_rule(retry_of(route, config.upstreams[upstream.name]))
    if rule is not None and rule.timeout_s is not None:
        upstream.keep_to(rule.timeout_s)
    return rule
