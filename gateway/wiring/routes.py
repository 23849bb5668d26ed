"""From the routes of a configuration to the table in which requests find theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gateway.base.clock import US
from gateway.config.checking.key_checks import words_of
from gateway.config.models.changes import compile_rewrite
from gateway.config.models.consistency import parts
from gateway.config.models.cors import CorsConfig
from gateway.config.models.direct_responses import RedirectConfig, parse_location
from gateway.config.models.gateway import FieldEdits, GatewayConfig, RetryConfig, RouteConfig
from gateway.config.models.policies import PolicyConfig, candidate_name, with_candidates
from gateway.config.models.retry import FAILURES, GRPC_STATUSES
from gateway.config.models.routes import retry_of
from gateway.config.values.store_url import capabilities_of
from gateway.http.answer import Answer
from gateway.http.editing.fields import FieldEdit
from gateway.http.editing.pages import Page
from gateway.http.limit_fields import limit_fields
from gateway.limiter.costs import CostedPlan
from gateway.limiter.decider import Decider
from gateway.limiter.plan import CompiledPolicy, Plan, ReportedPlan
from gateway.limits import ALGORITHMS
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.changes import Outgoing, make_renderer
from gateway.proxy.cors import Cors
from gateway.proxy.direct_responses import ErrorPages, redirect
from gateway.proxy.peeked_body import compile_body_reader
from gateway.proxy.routes import Route
from gateway.proxy.upstream.retry import GRPC_OUTCOMES, IDEMPOTENT, RetryRule
from gateway.proxy.upstream.targets import Upstream
from gateway.proxy.upstream_limits import COMBINE
from gateway.routing.body_values import BODY_KEYS
from gateway.routing.keys import Readers
from gateway.routing.rewrite import Rewrite
from gateway.routing.secret_key import compile_logged_target
from gateway.routing.table import Pattern, RouteTable
from gateway.wiring.conditions import compile_access, compile_senders
from gateway.wiring.costs import with_costs
from gateway.wiring.policies import RouteKeys, compile_plan, readers_of
from gateway.wiring.sources import Sources
from gateway.wiring.tokens import Tokens

if TYPE_CHECKING:
    from gateway.proxy.direct_responses import DirectResponse
    from gateway.proxy.request import Request


def compile_routes(
    config: GatewayConfig,
    upstreams: Mapping[str, Upstream],
    policies: dict[str, CompiledPolicy],
    decider: Decider,
    metrics: GatewayMetrics,
    sources: Sources,
    tokens: Tokens | None,
) -> RouteTable[Route]:
    """Compile all routes of a configuration into the table to look them up in."""
    entries: list[tuple[Pattern, Route]] = []
    configured = with_candidates(config.policies)
    is_reported = capabilities_of(config.store.url).is_gatekeeper

    def plan_of(route: RouteConfig, names: Sequence[str], cost: int) -> Plan | None:
        if not names:
            return None
        keys = RouteKeys(route.name, sources, _readers(route.path, tokens))
        plan = compile_plan(keys, names, configured, policies, cost)
        every = {rule.policy.name: None for rule in plan.all_rules}
        plan = with_costs(plan, list(every), configured, keys.readers)
        return ReportedPlan(plan.rules) if is_reported else plan

    of_preflight = () if config.preflight is None else (config.preflight,)
    for route in config.routes:
        plan = plan_of(route, route.policies, route.cost)
        upstream = None if route.upstream is None else upstreams[route.upstream]
        preflight = plan_of(route, of_preflight, 1)
        fields = limit_fields(plan.rules) if plan else None
        pages = compile_pages(config, route)
        compiled = Route(
            route.name,
            upstream,
            compile_direct_response(route),
            plan,
            fields,
            metrics.route(route.name),
            # An upgrade is a matter of HTTP/1.1.
            route.websocket and upstream is not None and not upstream.speaks_http2,
            None if upstream is None else _retry(route, config, upstream),
            config.server.max_body if route.max_body is None else route.max_body or None,
            compile_outgoing(route),
            compile_edit(route.response_headers, route.name),
            pages,
            (pages.intercepted or None) if pages is not None else None,
            compile_cors(route.cors),
            COMBINE[route.upstream_limits],
            plan is not None
            and _repeats_refusals(plan, route.response_headers)
            and (preflight is None or _repeats_refusals(preflight, route.response_headers)),
            decider,
            _reads_body([*route.policies, *of_preflight], configured),
            compile_logged_target(
                route.path, _secret_words([*route.policies, *of_preflight], configured)
            ),
            compile_access(config, route, sources.contents),
            preflight,
            limit_fields(preflight.rules) if preflight else None,
        )
        entries.append((route.pattern, compiled))
    return RouteTable(entries, compile_senders(config.routes, sources.contents))


def _reads_body(names: Sequence[str], policies: Mapping[str, PolicyConfig]) -> bool:
    """Return whether any of these policies counts by the body of a request, or by parts of it."""
    return any(
        word.partition(":")[0] in BODY_KEYS
        for name in _and_candidates(names, policies)
        for _, word in words_of(name, policies[name])
    )


def _and_candidates(names: Sequence[str], policies: Mapping[str, PolicyConfig]) -> list[str]:
    every = (name for own in names for name in (own, candidate_name(own)))
    return [name for name in every if name in policies]


def _readers(pattern: str, tokens: Tokens | None) -> Readers:
    """Return the readers of the keys of a route, which include fields of bodies."""
    of_bodies = {kind: partial(compile_body_reader, kind) for kind in BODY_KEYS}
    return {**readers_of(pattern, tokens), **of_bodies}


def _secret_words(names: Sequence[str], policies: Mapping[str, PolicyConfig]) -> list[str]:
    """Return what those of some policies count by whose keys are secret."""
    return [
        word
        for name in _and_candidates(names, policies)
        if policies[name].secret
        for lines in (policies[name].limits, *policies[name].tiers.values())
        for line in lines
        for word in line.per
    ]


def _repeats_refusals(plan: Plan, edits: FieldEdits) -> bool:
    """Whether a refusal stays true, word for word, for as long as it says.

    It does not if something is given back (a queue, a lease, a cost), if refusals are counted
    themselves, if the numbers of a key are read from a table that changes, or if the response has
    something in it that differs between two requests, such as the time of day. (The lists of
    conditions may change as well. They take seconds to do so, and a refusal is repeated for a tenth
    of one at most.)
    """
    templates = (*edits.set.values(), *edits.add.values())
    if isinstance(plan, CostedPlan) and plan.settles:
        return False
    return not any(template.names for template in templates) and all(
        rule.policy.enforced_parts == PARTS_PER_WHOLE
        and rule.policy.terms is None
        and not rule.policy.queue_max
        and rule.policy.overrides is None
        and rule.policy.body != "throttlex"
        and not rule.limit.count_refused
        # A token expires, and keys and tiers change.
        and "jwt:" not in rule.word
        and not rule.policy.has_tiers
        and ALGORITHMS[rule.limit.algorithm].renew is None
        for rule in plan.rules
    )


def _retry(route: RouteConfig, config: GatewayConfig, upstream: Upstream) -> RetryRule | None:
    """Return the retries of a route, with its upstream's as defaults."""
    rule = compile_rule(retry_of(route, config.upstreams[upstream.name]))
    if rule is not None and rule.timeout_s is not None:
        upstream.keep_to(rule.timeout_s)
    return rule


def _outcome(condition: str | int) -> int:
    """Return the outcome of an attempt that a condition of retries names."""
    return condition if isinstance(condition, int) else GRPC_OUTCOMES + GRPC_STATUSES[condition]


def compile_rule(config: RetryConfig | None) -> RetryRule | None:
    """The rule of a configuration; None if nothing is ever tried again."""
    if config is None or config.tries == 1:
        return None
    methods: frozenset[str] | None = IDEMPOTENT
    if config.methods == "any":
        methods = None
    elif not isinstance(config.methods, str):
        methods = frozenset(config.methods)
    return RetryRule(
        tries=config.tries,
        failures=frozenset(str(one) for one in config.when if one in FAILURES),
        statuses=frozenset(_outcome(one) for one in config.when if one not in FAILURES),
        methods=methods,
        timeout_s=None if config.timeout is None else config.timeout / US,
        backoff_us=config.backoff,
        max_backoff_us=max(config.backoff, config.max_backoff),
        share=parts(config.budget),
        floor=config.min_retries,
        max_body=config.max_body,
    )


def compile_outgoing(route: RouteConfig) -> Outgoing | None:
    """Return the changes to a route's requests; None for none."""
    rewrite = compile_rewrite(route.path, route.path_change)
    edit = compile_edit(route.request_headers, route.name)
    upstream_host = route.upstream_host
    if rewrite is None and edit is None and upstream_host == "client":
        return None
    host = {"client": None, "target": ""}.get(upstream_host, upstream_host)
    return Outgoing(rewrite, host, edit)


def compile_edit(edits: FieldEdits, route: str) -> FieldEdit[Request] | None:
    """Return the edits of header fields in one direction; None if there are none.

    Args:
        edits: as configured.
        route: the name of the route that they belong to.
    """
    if edits.is_empty:
        return None
    lines = [
        (name, make_renderer(template, route))
        for fields in (edits.set, edits.add)
        for name, template in fields.items()
    ]
    return FieldEdit((*edits.set, *edits.remove), lines)


def compile_direct_response(route: RouteConfig) -> DirectResponse | None:
    """Return what answers the requests of a route without an upstream; None if it has one."""
    if route.redirect is not None:
        return _compile_redirect(route.path, route.redirect)
    if route.respond is None:
        return None
    respond = route.respond
    fields = f"Content-Type: {respond.type}\r\n".encode("ascii") if respond.body else b""
    reply = Answer(respond.status, fields, (respond.body or "").encode())
    return lambda _: reply


def _compile_redirect(pattern: str, config: RedirectConfig) -> DirectResponse:
    location = parse_location(pattern, config.to)
    taken = len(pattern.removesuffix("/**")[1:].split("/"))
    return redirect(
        config.status,
        location.template,
        location.indexes,
        Rewrite(taken, (), keeps_rest=True) if location.indexes else None,
        appends_query=config.keep_query and "?" not in config.to,
    )


def compile_cors(config: CorsConfig | None) -> Cors | None:
    """Return what browsers are told; None for nothing."""
    if config is None:
        return None
    return Cors(config.origins, config.expose, credentials=config.credentials)


def compile_pages(config: GatewayConfig, route: RouteConfig | None = None) -> ErrorPages | None:
    """Return the formats of errors with or without a route; None for problem documents only."""
    pages = config.error_pages
    if route is not None and "error_pages" in route.model_fields_set:
        if route.error_pages is None:
            return None
        pages = {**(pages or {}), **route.error_pages}
    if pages is None:
        return None
    return ErrorPages(
        {
            status: Page(page.html, page.text, page.problem, page.intercept)
            for status, page in pages.items()
        }
    )
