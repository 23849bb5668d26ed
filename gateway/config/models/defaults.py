"""Defaults of policies, upstreams and routes."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from gateway.config.models.answers import OnLimit, UpstreamLimits
from gateway.config.models.cors import Cors
from gateway.config.models.policies import (
    HeaderStyle,
    OnStoreError,
    PolicyConfig,
    Queue,
    QueueConfig,
    answers_of_throttlex,
    bind,
    has_queue,
)
from gateway.config.models.routes import RouteConfig
from gateway.config.models.tiers import keyed_lines
from gateway.config.models.upstreams import Timeouts
from gateway.config.values.base import Model, overlay, untouched

GATEKEEPER_WAITS_US: Final = 5_000_000
"""The default wait of a gatekeeper of Smockron."""


class Defaults(Model):
    """Default values of policies, upstreams and routes."""

    on_limit: OnLimit = Field(untouched(OnLimit), description="As in a policy.")
    on_store_error: OnStoreError = Field("local", description="As in a policy.")
    headers: HeaderStyle = Field("both", description="As in a policy.")
    queue: Queue = Field(None, description="As in a policy.")
    timeouts: Timeouts = Field(untouched(Timeouts), description="As in an upstream.")
    upstream_limits: UpstreamLimits = Field("replace", description="As in a route.")
    cors: Cors = Field(None, description="As in a route; also for requests that match none.")


def fill_route(route: RouteConfig, defaults: Defaults) -> RouteConfig:
    """Return a route with the defaults for options that it does not set."""
    names = ("upstream_limits", "cors") if route.upstream is not None else ("cors",)
    update = {name: getattr(defaults, name) for name in names if name not in route.model_fields_set}
    return route.model_copy(update=update)


def fill_policy(
    policy: PolicyConfig,
    defaults: Defaults,
    *,
    is_gatekeeper: bool = False,
    is_debited: bool = False,
) -> PolicyConfig:
    """Return a policy with the defaults for options that it does not set.

    Args:
        policy: the policy as written.
        defaults: the defaults of all policies.
        is_gatekeeper: whether the store is a gatekeeper of Smockron, which has defaults of its own.
        is_debited: whether its requests are debits of a listener.
    """
    if is_gatekeeper:
        defaults = _of_gatekeepers(defaults)
    set_fields = policy.model_fields_set
    settles = policy.cost.settle is not None
    max_debt = policy.cost.max_debt if is_debited or settles else 0
    # A default applies to policies that can have it; options of the policy itself were checked.
    can_queue = has_queue(policy.limits) and (policy.consistency != "eventual" or is_gatekeeper)
    keeps_queue = "queue" in set_fields or not can_queue
    queue = policy.queue if keeps_queue else defaults.queue
    update: dict[str, Any] = {
        "queue": queue,
        "on_limit": overlay(policy.on_limit, defaults.on_limit),
        "limits": bind(
            policy.limits,
            policy.algorithm_of_lines,
            queue,
            lease_us=policy.lease,
            count_refused=policy.count_refused,
            max_debt=max_debt,
        ),
    }
    update["tiers"] = {
        name: bind(
            keyed_lines(lines, policy.limits),
            policy.algorithm_of_lines,
            queue,
            lease_us=policy.lease,
            count_refused=policy.count_refused,
            max_debt=max_debt,
        )
        for name, lines in policy.tiers.items()
    }
    for name in ("on_store_error", "headers"):
        if name not in set_fields:
            update[name] = getattr(defaults, name)
    if policy.throttlex is not None:
        body = {*policy.on_limit.model_fields_set, *defaults.on_limit.model_fields_set}
        update |= answers_of_throttlex(
            update["on_limit"], set_fields | defaults.model_fields_set, body
        )
    return policy.model_copy(update=update)


def _of_gatekeepers(defaults: Defaults) -> Defaults:
    """The behaviour of Smockron's gatekeepers: wait up to five seconds, then 503; no numbers."""
    queue = QueueConfig.model_construct(
        {"max_wait"}, max=QueueConfig.model_fields["max"].default, max_wait=GATEKEEPER_WAITS_US
    )
    usual: dict[str, Any] = {
        "queue": queue,
        "headers": "none",
        "on_limit": overlay(defaults.on_limit, OnLimit.model_construct({"status"}, status=503)),
    }
    set_fields = defaults.model_fields_set - {"on_limit"}
    return defaults.model_copy(update={k: v for k, v in usual.items() if k not in set_fields})
