"""Routes as they run: everything a request needs once its route is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.models.gateway import FieldEdits, GatewayConfig, RouteConfig
from gateway.config.models.routes import retry_of
from gateway.config.values.store_url import parse_store_url
from gateway.http.answer import LimitFields
from gateway.http.editing.fields import FieldEdit
from gateway.limiter.plan import CompiledPolicy, Plan, ReportedPlan, RouteKeys, compile_plan
from gateway.limits import ALGORITHMS
from gateway.observe.metrics import GatewayMetrics, RouteMetrics
from gateway.proxy.changes import Outgoing, compile_edit, compile_outgoing
from gateway.proxy.direct_responses import (
    ErrorPages,
    compile_direct_response,
    compile_pages,
)
from gateway.proxy.upstream.retry import RetryRule, compile_rule
from gateway.proxy.upstream.targets import Upstream
from gateway.routing.table import Pattern, RouteTable

if TYPE_CHECKING:
    from gateway.proxy.direct_responses import DirectResponse
    from gateway.proxy.request import Request


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        name: as configured.
        upstream: where its requests go; None if the gateway answers them all.
        direct_response: makes the answers of a route without an upstream.
        plan: the limits they are held to; None if there are none.
        limit_fields: makes the header lines about limits of its answers.
        metrics: its counters.
        websocket: whether WebSockets may be opened.
        retry: when its requests are sent again; None for never.
        max_body: bytes that a request's body may have; None for any.
        outgoing: what is changed of its requests; None for nothing.
        answer_edit: what is changed of the header fields of its answers; None for nothing.
        pages: the forms that errors take; None for problem documents.
        intercepted: statuses of the upstream's answers that error pages replace; None for none.
        repeats_refusals: whether a refusal may be sent again as long as it holds.
    """

    name: str
    upstream: Upstream | None
    direct_response: DirectResponse | None
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
    repeats_refusals: bool


def compile_routes(
    config: GatewayConfig,
    upstreams: Mapping[str, Upstream],
    policies: dict[str, CompiledPolicy],
    metrics: GatewayMetrics,
) -> RouteTable[Route]:
    """Compile all routes of a configuration into the table to look them up in."""
    entries: list[tuple[Pattern, Route]] = []
    is_reported = parse_store_url(config.store.url).kind == "smockron"
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
            compile_direct_response(route),
            plan,
            fields,
            metrics.route(route.name),
            route.websocket,
            None if route.upstream is None else _retry(route, config, upstreams[route.upstream]),
            config.server.max_body if route.max_body is None else route.max_body or None,
            compile_outgoing(route),
            compile_edit(route.response_headers, route.name),
            pages,
            (pages.intercepted or None) if pages is not None else None,
            plan is not None and _repeats_refusals(plan, route.response_headers),
        )
        entries.append((pattern, compiled))
    return RouteTable(entries)


def _repeats_refusals(plan: Plan, edits: FieldEdits) -> bool:
    """Whether a refusal stays true, word for word, for as long as it says.

    It does not if turns are handed back (a queue, a lease), if refusals are counted themselves, if
    the numbers of a key are read from a table that changes, or if the response has something in it
    that differs between two requests, such as the time of day.
    """
    templates = (*edits.set.values(), *edits.add.values())
    return not any(template.names for template in templates) and all(
        rule.policy.terms is None
        and not rule.policy.queue_max
        and rule.policy.book is None
        and rule.policy.body != "throttlex"
        and not rule.limit.count_refused
        and ALGORITHMS[rule.limit.algorithm].renew is None
        for rule in plan.rules
    )


def _retry(route: RouteConfig, config: GatewayConfig, upstream: Upstream) -> RetryRule | None:
    """What a route says of retries, and for the rest what its upstream says."""
    rule = compile_rule(retry_of(route, config.upstreams[upstream.name]))
    if rule is not None and rule.timeout_s is not None:
        upstream.keep_to(rule.timeout_s)
    return rule
