"""The decisions about a request before it is forwarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.limiter.decider import Pending
    from gateway.limiter.lease_keeper import HeldLease
    from gateway.proxy.answer_meter import AnswerMeter
    from gateway.proxy.routes import Route


class Ruling:
    """The route of a request, and the result of its limits; `Gate` fills it in.

    Attributes:
        route: the route that the request takes.
        plan: the limits that apply to it; None if there are none.
        limit_fields: creates the header lines about them; None for none.
        sent_target: the request target for the upstream, if the route changes requests.
        added_fields: header lines about limits that the response gets.
        policy: the policy that decided; empty if none did.
        decision: as in `gateway.observe.logs.AccessEntry`.
        wait_us: how long the request waited for its turn.
        is_waiting: whether it waits for its turn now.
        pending: the store's decision, while it is on its way.
        meter: reads what the request has cost in its response; None if nothing remains to be done.
        lease: the request's place among those in flight, if a limit counts them.
        trials: as in `gateway.limiter.outcome.Outcome`.
    """

    __slots__ = (
        "added_fields",
        "decision",
        "is_waiting",
        "lease",
        "limit_fields",
        "meter",
        "pending",
        "plan",
        "policy",
        "route",
        "sent_target",
        "trials",
        "wait_us",
    )

    def __init__(self, route: Route) -> None:
        self.route = route
        self.plan = route.plan
        self.limit_fields = route.limit_fields
        self.sent_target = ""
        self.added_fields = b""
        self.policy = ""
        self.decision = "none"
        self.wait_us = 0
        self.is_waiting = False
        self.pending: Pending | None = None
        self.meter: AnswerMeter | None = None
        self.lease: HeldLease | None = None
        self.trials: Sequence[str] = ()

    def release(self) -> None:
        """Release what the request held while it was in progress."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()
