"""Decides about a request before anything is forwarded: its route, and its limits."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final, NoReturn

from aiohttp.hdrs import EXPECT, MAX_FORWARDS, TRANSFER_ENCODING, VIA

from gateway.base.clock import monotonic_us, wall_us
from gateway.base.errors import BadRequestError
from gateway.config.values.address import DEFAULT_PORTS
from gateway.http import answer
from gateway.http.answer import Answer
from gateway.limiter.costs import CostedPlan
from gateway.limiter.decider import (
    Outcome,
    Pending,
    refused_key,
    refusing_rule,
    slowest_rule,
)
from gateway.limiter.lease_keeper import HeldLease, leases_of
from gateway.limiter.outcome import without_queue
from gateway.limiter.plan import CompiledPolicy, MissingKey, Plan, Rule
from gateway.limits.decision import Verdict
from gateway.proxy.answer_meter import AnswerMeter
from gateway.proxy.client.request_parser import changed
from gateway.proxy.field_names import NOTHING_HIDDEN, Hidden, without
from gateway.proxy.head import PSEUDONYM
from gateway.proxy.request import Request
from gateway.proxy.routes import Route
from gateway.proxy.ruling import Ruling
from gateway.routing.client_address import ClientAddress
from gateway.routing.conditions import is_preflight
from gateway.routing.forwarding import read_proxy_report
from gateway.routing.host import normal_host
from gateway.routing.path import canonical_path
from gateway.routing.table import RouteTable

HOPS_MAX: Final = 10
"""Gateways of this kind that a request may pass through before it counts as a loop."""
_is_count: Final = re.compile(r"[0-9]{1,9}").fullmatch
_is_challenge: Final = re.compile(r"/\.well-known/acme-challenge/[A-Za-z0-9_-]+").fullmatch
KNOWN_MAX: Final = 4096
"""How many targets to cache the route of."""
KNOWN_MAX_LENGTH: Final = 256
"""Longer paths are looked up each time, or clients could fill memory with them."""


def _check_coding(request: Request) -> None:
    if request.is_http_1_0:
        # Framing that HTTP/1.0 does not have (RFC 9112, section 6.1).
        raise BadRequestError("A request of HTTP/1.0 has no chunks", kind="framing", closes=True)
    if request.headers[TRANSFER_ENCODING].lower() != "chunked":
        raise BadRequestError("This transfer coding is not known", 501, kind="framing", closes=True)


def _check_method(request: Request) -> None:
    if request.method == "CONNECT":
        raise BadRequestError("The request target is not valid", kind="target", closes=True)
    if request.method == "TRACE":
        raise BadRequestError("This method is not allowed", 405, kind="method", closes=True)


def _path(request: Request) -> str:
    """The inputs of a route lookup."""
    return request.path if request.path != "*" else "/"


def _hops(via: Sequence[str]) -> int:
    """Return how often a request passed gateways of this kind (RFC 9110, section 7.6.3)."""
    # Each distinct one once: thousands may be empty.
    hops = Counter(",".join(via).split(","))
    return sum(count for hop, count in hops.items() if hop.split()[1:2] == [PSEUDONYM])


class Gate:
    """Finds the route of a request and applies its limits.

    Args:
        routes: where requests go.
        addresses: which proxies are trusted to name the client.
        hidden: fields that the configuration looks at and that clients may not set.
    """

    def __init__(
        self,
        routes: RouteTable[Route],
        addresses: ClientAddress,
        hidden: Hidden = NOTHING_HIDDEN,
    ) -> None:
        self._hidden = hidden
        self._routes = routes
        self._addresses = addresses
        self._known: dict[tuple[str, str, str], tuple[str, Route]] = {}

    def recognise(self, peer: str) -> tuple[str, bool]:
        """Return the key that a peer is counted under, and whether it is a trusted proxy."""
        return self._addresses.bucket(peer), self._addresses.is_trusted(peer)

    def _find_client(self, request: Request) -> None:
        """Find the client, and the scheme it used, of a request from a trusted proxy."""
        report = request.report = read_proxy_report(
            self._addresses, request.client, request.headers
        )
        if report is not None:
            request.client = report.client
            request.client_key = self._addresses.bucket(report.client)
            request.scheme = report.scheme or request.scheme

    def find_route(self, request: Request) -> Route:
        """Read the request's target and find its route.

        Raises:
            BadRequestError: there is no target, or the request is ambiguous.
        """
        if request.connection.is_trusted and request.report is None:
            self._find_client(request)
        self._check_fields(request)
        request.read_target()
        if self._hidden.from_strangers:
            is_trusted = request.connection.is_trusted
            names = self._hidden.from_all if is_trusted else self._hidden.from_strangers
            request.headers = without(request.headers, names)
        # Most requests repeat a target.
        known_as = (request.raw_host, request.method, request.path)
        known = self._known.get(known_as)
        if known is None:
            route = self._look_up(request)
            if not self._routes.has_conditions and len(request.path) <= KNOWN_MAX_LENGTH:
                if len(self._known) >= KNOWN_MAX:
                    self._known.clear()
                self._known[known_as] = (request.host, route)
        else:
            request.host, route = known
        if not request.raw_host and not request.is_http_1_0:
            raise BadRequestError("The host is not valid", kind="host")
        return route

    def to_https(self, request: Request) -> Answer | None:
        """Redirect a client to the same resource over HTTPS.

        Returns:
            None if the client already uses HTTPS, according to a trusted proxy, or if the request
            is an ACME challenge (RFC 8555, section 8.3), which must be served over HTTP.

        Raises:
            BadRequestError: the request is ambiguous, or names no host.
        """
        if request.connection.is_trusted:
            self._find_client(request)
        if request.scheme == "https" or _is_challenge(request.target):
            return None
        self._check_fields(request)
        request.read_target()
        _check_method(request)
        # A request that would be refused there is refused here.
        canonical_path(_path(request))
        host = request.host = normal_host(request.raw_host)
        port = request.connection.https_port
        where = host if port == DEFAULT_PORTS["https"] else f"{host}:{port}"
        target = request.target if request.target != "*" else "/"
        location = f"https://{where}{target}".encode("utf-8", "surrogateescape")
        return Answer(308, b"Location: %b\r\nCache-Control: no-store\r\n" % location, b"")

    def _check_fields(self, request: Request) -> None:
        """Refuse ambiguous framing of a body, and requests that loop.

        The parser and the reader of requests have already refused most of it.
        """
        headers = request.headers
        if TRANSFER_ENCODING in headers:
            if not request.message.chunked:
                # An empty one, which the parser ignores.
                raise BadRequestError("The body's length is not valid", kind="framing", closes=True)
            _check_coding(request)
        if VIA in headers and _hops(headers.getall(VIA)) >= HOPS_MAX:
            raise BadRequestError("The request runs in circles", 508, kind="loop")
        if EXPECT in headers and ", ".join(headers.getall(EXPECT)).lower() != "100-continue":
            raise BadRequestError(
                "What the request expects is not known", 417, kind="expect", closes=True
            )

    def count_hop(self, request: Request) -> Answer | None:
        """Apply `Max-Forwards` of an OPTIONS request (RFC 9110, section 7.6.2).

        Returns:
            The answer, if the request must not be forwarded.

        Raises:
            BadRequestError: the field is not a number.
        """
        hops = request.headers.get(MAX_FORWARDS)
        if hops is None:
            return None
        if not _is_count(hops):
            raise BadRequestError("Max-Forwards is not valid", kind="hops")
        left = int(hops) - 1
        if left < 0:
            return answer.NO_FURTHER
        request.message = changed(
            request.message,
            raw_headers=tuple(
                (name, b"%d" % left if name.lower() == b"max-forwards" else value)
                for name, value in request.message.raw_headers
            ),
        )
        return None

    def _look_up(self, request: Request) -> Route:
        _check_method(request)
        if request.raw_host:
            request.host = normal_host(request.raw_host)
        path = _path(request)
        headers = request.headers
        route = self._routes.find(request.host, path, request.method, headers, request)
        if route is None:
            self._no_route(request, path)
        return route

    def _no_route(self, request: Request, path: str) -> NoReturn:
        allowed = self._routes.methods(request.host, path, request.headers, request)
        if allowed:
            fields = b"Allow: %b\r\n" % ", ".join(sorted(allowed)).encode("ascii")
            message = "This method is not allowed here"
            raise BadRequestError(message, 405, kind="method", fields=fields)
        raise BadRequestError("No route matches this request", 404, kind="no_route")

    def check_access(self, request: Request, ruling: Ruling) -> None:
        """Let a request use its route, before anything else is done for it.

        Raises:
            BadRequestError: it may not.
        """
        if ruling.route.access is not None:
            ruling.decision = "refuse"
            ruling.route.access.check(request)
            ruling.decision = "none"

    def find_plan(self, request: Request, ruling: Ruling) -> Plan | None:
        """Return the limits of a request; None if there are none."""
        route = ruling.route
        if route.preflight_plan is not None and is_preflight(request):
            ruling.plan, ruling.limit_fields = route.preflight_plan, route.preflight_fields
        return ruling.plan

    def ask(self, request: Request, ruling: Ruling) -> Outcome | Pending | None:
        """Ask the decider; return None if no limit counts this request.

        Raises:
            BadRequestError: it lacks the key that it must be counted by.
        """
        plan = self.find_plan(request, ruling)
        if plan is None:
            return None
        question = plan.ask(request)
        if question is None or isinstance(question, MissingKey):
            self._uncounted(ruling, plan, question)
            return None
        return ruling.route.decider.decide(question[0], question[1])

    def apply(self, ruling: Ruling, outcome: Outcome) -> Answer | None:
        """Add the result of the limits to the ruling; return the refusal if it is one.

        If the verdict has a wait, await `wait` next.
        """
        verdict = outcome.verdict
        rules = outcome.rules
        ruling.trials = outcome.trials
        if not rules and not outcome.alone:
            # Nothing is enforced.
            return None
        if outcome.alone:
            if outcome.closed_by is not None:
                return self._closed(ruling, outcome.closed_by, verdict)
            ruling.decision = "error"
        if ruling.limit_fields is not None and rules:
            ruling.added_fields = ruling.limit_fields.lines(rules, verdict)
        if not verdict.allowed:
            return self._refuse(ruling, outcome)
        if ruling.plan is not None:
            self._hold(ruling, ruling.plan, outcome)
        if verdict.wait_us:
            return None
        if outcome.alone:
            if ruling.plan is not None:
                for policy in ruling.plan.policies:
                    policy.metrics.store_error_passed += 1
            return None
        _count_passed(ruling, rules)
        return None

    @staticmethod
    def _hold(ruling: Ruling, plan: Plan, outcome: Outcome) -> None:
        """Note what an admitted request holds until it ends, and what is settled then."""
        decider = ruling.route.decider
        if plan.holds:
            leases = leases_of(outcome)
            if leases is not None:
                ruling.lease = HeldLease(decider, leases)
        if isinstance(plan, CostedPlan):
            settlement = plan.settlement(decider, outcome)
            if settlement is not None:
                ruling.meter = AnswerMeter(settlement.settle, plan.fields)

    def _closed(self, ruling: Ruling, policy: CompiledPolicy, verdict: Verdict) -> Answer:
        ruling.policy = policy.name
        ruling.decision = "error"
        policy.metrics.store_error_refused += 1
        if policy.body == "throttlex":
            return answer.throttlex_closed(verdict.retry_after_us, wall_us())
        return answer.closed(verdict.retry_after_us)

    def _refuse(self, ruling: Ruling, outcome: Outcome) -> Answer:
        policy = refusing_rule(outcome).policy
        ruling.policy = policy.name
        ruling.decision = "refuse"
        policy.metrics.refused += 1
        draw = random.random() if policy.jitter else 0.0  # noqa: S311 - no secret
        if policy.body == "throttlex":
            key = refused_key(outcome)
            return answer.throttlex_refusal(policy, outcome.verdict, key, wall_us(), draw)
        return answer.refusal(policy, outcome.verdict, draw)

    async def wait(
        self, ruling: Ruling, outcome: Outcome, has_left: Callable[[], bool]
    ) -> Answer | None:
        """Return when the turn has come, or return the refusal if there is no room to wait.

        Args:
            ruling: what was decided so far.
            outcome: the verdict, with the wait.
            has_left: whether the client has left meanwhile; the turn is then free for others.
        """
        policy = slowest_rule(outcome).policy
        counters = policy.metrics
        decider = ruling.route.decider
        ruling.policy = policy.name
        if not decider.may_wait(outcome):
            decider.give_back(outcome)
            ruling.meter = None
            refused = outcome._replace(verdict=without_queue(outcome.verdict))
            fields = ruling.limit_fields
            if fields is not None:
                ruling.added_fields = fields.lines(refused.rules, refused.verdict)
            return self._refuse(ruling, refused)
        ruling.decision = "delay"
        counters.waiting += 1
        started_us = monotonic_us()
        ruling.is_waiting = True
        # A turn that is given up is given back, and costs nothing.
        meter, ruling.meter = ruling.meter, None
        try:
            await decider.wait_turn(outcome, has_left)
        finally:
            ruling.is_waiting = False
            counters.waiting -= 1
            ruling.wait_us = monotonic_us() - started_us
        ruling.meter = meter
        counters.delayed += 1
        counters.wait_us += ruling.wait_us
        return None

    def _uncounted(self, ruling: Ruling, plan: Plan, missing: MissingKey | None) -> None:
        """Admit a request that has no key to be counted by, or refuse it."""
        if missing is None:
            ruling.decision = "skip"
            for policy in plan.policies:
                policy.metrics.skipped += 1
            return
        ruling.policy = missing.policy.name
        ruling.decision = "refuse"
        missing.policy.metrics.refused += 1
        raise BadRequestError(missing.title, missing.status, kind="key", fields=missing.fields)


def _count_passed(ruling: Ruling, rules: Sequence[Rule]) -> None:
    ruling.policy = rules[0].policy.name
    ruling.decision = "pass"
    if len(rules) == 1:
        rules[0].policy.metrics.passed += 1
        return
    plan = ruling.plan
    if plan is not None and rules is plan.rules:
        policies: Collection[CompiledPolicy] = plan.policies
    else:
        policies = {id(rule.policy): rule.policy for rule in rules}.values()
    for policy in policies:
        policy.metrics.passed += 1
