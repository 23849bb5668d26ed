"""Routes at run time: everything a request needs once its route is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.http.editing.fields import FieldEdit
from gateway.http.limit_fields import LimitFields
from gateway.limiter.decider import Decider
from gateway.limiter.plan import Plan
from gateway.observe.metrics import RouteMetrics
from gateway.proxy.changes import Outgoing
from gateway.proxy.cors import Cors
from gateway.proxy.direct_responses import ErrorPages
from gateway.proxy.upstream.retry import RetryRule
from gateway.proxy.upstream.targets import Upstream
from gateway.proxy.upstream_limits import Combine
from gateway.routing.access import Access

if TYPE_CHECKING:
    from gateway.proxy.direct_responses import DirectResponse
    from gateway.proxy.request import Request


@dataclass(frozen=True, slots=True)
class Route:
    """One route.

    Attributes:
        name: as configured.
        upstream: where its requests go; None if the gateway answers them all.
        direct_response: creates the answers of a route without an upstream.
        plan: the limits of its requests; None if there are none.
        limit_fields: creates the header lines about limits of its answers.
        metrics: its counters.
        websocket: whether WebSockets may be opened.
        retry: when its requests are sent again; None for never.
        max_body: most bytes in a request's body; None for any.
        outgoing: the changes to its requests; None for no change.
        answer_edit: the changes to the header fields of its answers; None for no change.
        pages: the formats of errors; None for problem documents.
        intercepted: statuses of the upstream's answers that error pages replace; None for none.
        cors: which pages of other sites may read its answers; None if it does not say.
        combine_limits: combines an upstream's fields about its limits with `limit_fields`.
        repeats_refusals: whether a refusal may be sent again as long as it holds.
        decider: asks the store about the plan. A request stays with the one that it began with,
            whatever a reload changes meanwhile.
        reads_body: whether a limit counts by the body of its requests.
        logged_target: removes secret keys from a request target; None if it has none.
        access: who may use it; None for everybody.
        preflight_plan: the limits of preflight requests; None if these are counted like others.
        preflight_fields: creates the header lines about limits in answers to them.
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
    cors: Cors | None
    combine_limits: Combine
    repeats_refusals: bool
    decider: Decider
    reads_body: bool = False
    logged_target: Callable[[str], str] | None = None
    access: Access | None = None
    preflight_plan: Plan | None = None
    preflight_fields: LimitFields | None = None
