"""What a gateway gives its listeners for other systems' clients, in tests that have no gateway."""

from __future__ import annotations

from gateway.config.models.gateway import GatewayConfig
from gateway.limiter.decider import Decider
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.base import Store
from gateway.systems.base import FrontendContext
from gateway.wiring.policies import compile_policies, plans_of


def context_of(
    config: GatewayConfig, decider: Decider, store: Store, metrics: GatewayMetrics
) -> FrontendContext:
    """The context of the listeners of a configuration."""
    policies = compile_policies(config, metrics)
    plan_of = plans_of(config.policies, policies)
    return FrontendContext(config, decider, store, policies, plan_of, metrics)
