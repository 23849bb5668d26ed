"""Routes as they run: everything a request needs once its route is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.http.answer import Answer, LimitFields
from gateway.http.editing.fields import FieldEdit
from gateway.limiter.plan import Plan
from gateway.observe.metrics import RouteMetrics
from gateway.proxy.changes import Outgoing
from gateway.proxy.direct_responses import ErrorPages
from gateway.proxy.upstream.pool import Upstream
from gateway.proxy.upstream.retry import RetryRule

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
