"""What would become of one request: its route, its keys, and what is left of its limits.

The request is read, routed and identified by the code that serves requests, but nothing is sent to
an upstream, and stores are only asked to peek: nothing is spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from aiohttp.streams import EMPTY_PAYLOAD

import gateway
from gateway.base.clock import US
from gateway.base.errors import BadRequestError, StoreError
from gateway.base.tasks import becomes
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import with_candidates
from gateway.config.values.store_url import capabilities_of
from gateway.limiter.plan import MissingKey, Plan, Rule
from gateway.limiter.trial import enforced_policies
from gateway.limits.decision import Decision
from gateway.observe.metrics import GatewayMetrics
from gateway.proxy.client.connection import ClientConnection
from gateway.proxy.client.handler import ListenerRules
from gateway.proxy.peeked_body import known_body
from gateway.proxy.request import Request
from gateway.proxy.routes import Route
from gateway.proxy.ruling import Ruling
from gateway.proxy.server import Proxy
from gateway.routing.path import canonical_path
from gateway.routing.reasons import RoutedRequest, why_before, why_not, why_not_from
from gateway.stores.base import Ask
from gateway.stores.deadline import decide_within
from gateway.wiring.conditions import compile_exempt, compile_others
from gateway.wiring.running import ProcessParts, RunningConfig

STORE_S: Final = 2.0
"""How long to wait for a store that does not respond."""
NOT_ROUTED: Final = frozenset({"no_route", "method"})
"""The kinds of errors of a request that no route takes."""


class Inquiry(NamedTuple):
    """A request to explain.

    Attributes:
        head: its head, as a client would send it.
        peer: the address that the connection comes from.
        scheme: `http` or `https`.
        body: its body.
    """

    head: bytes
    peer: str
    scheme: str
    body: bytes = b""


class OtherRoute(NamedTuple):
    """A route that the request does not take.

    Attributes:
        name: its name.
        why: the end of a sentence: of one that begins with this route, if it does not match, and
            otherwise of one that begins with the chosen route.
        condition: which condition is not met, as in `Mismatch`; empty if this route matches too.
    """

    name: str
    why: str
    condition: str = ""


class CountedLimit(NamedTuple):
    """One limit that counts the request.

    Attributes:
        rule: the limit, with its policy.
        key: the identity that the request is counted under.
        decision: what the store said of the key; None if it was not asked or did not respond.
        is_enforced: whether it acts, and is not only tried out.
        cost: what the request costs under it.
    """

    rule: Rule
    key: str
    decision: Decision | None
    is_enforced: bool = True
    cost: int = 1


class ExemptPolicy(NamedTuple):
    """A policy that does not count the request.

    Attributes:
        name: its name.
        is_exception: whether the request is an exception, and not just none of those that it is
            only for.
    """

    name: str
    is_exception: bool


class Findings(NamedTuple):
    """What was found out about a request.

    Attributes:
        client: the address that it is counted for.
        is_reported: whether a trusted proxy named this address.
        route: the route that it takes; None if it has none.
        refused: the status and the title of the response, if the request is refused before any
            limit is asked; None if it is not.
        redirect: where its listener redirects it; empty if it does not.
        sent_target: the request target for the upstream; empty if the route has none.
        others: the other routes, in the order of the file.
        limits: the limits that count it, in order.
        exempt: the policies that do not count it, whatever its key, and why.
        store_error: why the store could not be asked; empty if it was, or was not needed.
        token: what becomes of the token of the request, as the end of a sentence; empty if it has
            none, or if no limit of the route counts by claims.
    """

    client: str
    is_reported: bool
    route: Route | None = None
    refused: tuple[int, str] | None = None
    redirect: str = ""
    sent_target: str = ""
    others: Sequence[OtherRoute] = ()
    limits: Sequence[CountedLimit] = ()
    exempt: Sequence[ExemptPolicy] = ()
    store_error: str = ""
    token: str = ""


async def inquire(config: GatewayConfig, inquiry: Inquiry) -> Findings:
    """Find out what would become of a request, without spending anything.

    Args:
        config: checked and complete.
        inquiry: the request.

    Raises:
        StartError: the URL of the store cannot be used.
    """
    metrics = GatewayMetrics(gateway.__version__)
    running = RunningConfig(config, ProcessParts(metrics, has_frontends=False))
    running.sources.load()
    running.compile()
    try:
        return await _follow(running, Proxy(running.settings(None), metrics), inquiry)
    finally:
        await running.aclose()


async def _follow(running: RunningConfig, proxy: Proxy, inquiry: Inquiry) -> Findings:
    """Take the steps of `Driver.serve` up to the decision."""
    config, gate = running.config, running.settings(None).gate
    listeners = [one for one in config.listen if one.scheme == inquiry.scheme]
    redirects = [one.redirect_to_https for one in listeners if one.redirect_to_https]
    acceptor = proxy.acceptor(ListenerRules(redirects[0] if redirects else 0))
    # Over HTTP/2 the same becomes of it.
    connection = ClientConnection(acceptor, peer=inquiry.peer)
    connection.scheme = inquiry.scheme
    connection.peer_key, connection.is_trusted = proxy.recognise(inquiry.peer)
    found = Findings(inquiry.peer, is_reported=False)
    request: Request | None = None
    try:
        message = acceptor.settings.parser.parse(inquiry.head)
        payload = known_body(inquiry.body) if inquiry.body else EMPTY_PAYLOAD
        request = Request(connection, message, payload)
        if connection.https_port and (reply := gate.to_https(request)) is not None:
            location = reply.fields.partition(b"\r\n")[0].removeprefix(b"Location: ")
            return found._replace(redirect=location.decode("utf-8", "replace"))
        route = gate.find_route(request)
    except BadRequestError as error:
        found = found._replace(refused=(error.status, error.title))
        if request is not None and error.kind in NOT_ROUTED:
            found = found._replace(others=_other_routes(running, None, request))
        return found
    found = found._replace(
        client=request.client,
        is_reported=request.report is not None,
        route=route,
        others=_other_routes(running, route.name, request),
    )
    if route.upstream is not None:
        outgoing = route.outgoing
        target = "" if outgoing is None else outgoing.target(request)
        found = found._replace(sent_target=target or request.target)
    try:
        ruling = Ruling(route)
        gate.check_access(request, ruling)
        plan = gate.find_plan(request, ruling)
    except BadRequestError as error:
        return found._replace(refused=(error.status, error.title))
    return found if plan is None else await _count(running, plan, request, found)


async def _count(running: RunningConfig, plan: Plan, request: Request, found: Findings) -> Findings:
    """Add what the limits of the route say."""
    found = found._replace(exempt=list(_exempt(running, plan, request)))
    if running.reader is not None:
        await running.reader.start()
    tokens = running.tokens
    if tokens is not None and any(
        "jwt:" in rule.word or rule.policy.has_tiers for rule in plan.all_rules
    ):
        await tokens.source.start()
        found = found._replace(token=tokens.explain(request))
    question = plan.ask(request)
    if isinstance(question, MissingKey):
        return found._replace(refused=(question.status, question.title))
    if question is None:
        return found
    ask, rules = question
    decisions, store_error = await _peek(running, ask)
    is_enforced = enforced_policies(rules, ask.keys)
    counted = [
        CountedLimit(rule, key, decision, is_enforced[rule.policy.name], cost)
        for rule, key, decision, cost in zip(rules, ask.keys, decisions, ask.each_cost, strict=True)
    ]
    return found._replace(limits=counted, store_error=store_error)


def _exempt(running: RunningConfig, plan: Plan, request: Request) -> Iterator[ExemptPolicy]:
    policies = with_candidates(running.config.policies)
    lists = running.sources.contents
    for name in (policy.name for policy in plan.policies):
        is_exempt = compile_exempt(policies[name], lists)
        if is_exempt is not None and is_exempt(request):
            is_other = compile_others(policies[name], lists)
            yield ExemptPolicy(name, is_exception=is_other is None or not is_other(request))


async def _peek(running: RunningConfig, ask: Ask) -> tuple[Sequence[Decision | None], str]:
    """Return what a store says of each key of an ask; Nones, and perhaps why, if it cannot."""
    unknown = [None] * len(ask.limits)
    config, store = running.config, running.store
    can = capabilities_of(config.store.url)
    if not (can.is_shared and can.can_peek):
        return unknown, ""
    await store.start()
    await becomes(lambda: store.is_ready, STORE_S)
    try:
        looked = [Ask(ask.limits, ask.keys, 0, 0)]
        verdicts = await decide_within(store, looked, max(config.store.deadline / US, STORE_S))
    except StoreError as error:
        return unknown, str(error)
    return verdicts[0].decisions, ""


def _other_routes(running: RunningConfig, chosen: str | None, request: Request) -> list[OtherRoute]:
    patterns = {route.name: route.pattern for route in running.config.routes}
    lists = running.sources.contents
    path = canonical_path(request.path) if request.path != "*" else "/"
    routed = RoutedRequest(request.host, path, request.method, request.headers)
    others: list[OtherRoute] = []
    for name, pattern in patterns.items():
        if name == chosen:
            continue
        mismatch = why_not(pattern, routed) or why_not_from(pattern.sender, request, lists)
        if mismatch is not None:
            others.append(OtherRoute(name, mismatch.text, mismatch.condition))
        elif chosen is not None:
            others.append(OtherRoute(name, why_before(patterns[chosen], pattern)))
    return others
