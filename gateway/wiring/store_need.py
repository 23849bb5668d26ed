"""Whether a gateway should get traffic while its store is unavailable."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.config.models.gateway import GatewayConfig


def reason_to_need_store(config: GatewayConfig) -> str:
    """Return what needs the store so much that the gateway is not ready without it; or nothing.

    All gateways on a store lose it at the same moment. If each of them then reported that it is
    not ready because of one policy, all their routes would be unavailable instead of one.

    Returns:
        The subject of a sentence such as "every route needs it"; empty if the gateway is ready.
    """
    if config.ready.needs_store:
        return _first_need(config)
    serves = (
        *(_admits(config, route.policies) for route in config.routes),
        *(one.throttr is None and _admits(config, one.policies) for one in config.listeners),
    )
    if any(serves):
        return ""
    return "every route" if config.routes else "every listener"


def _first_need(config: GatewayConfig) -> str:
    if not _admits(config, config.policies):
        return "a policy"
    if any(listener.throttr is not None for listener in config.listeners):
        return "a Throttr listener"
    return ""


def _admits(config: GatewayConfig, names: Iterable[str]) -> bool:
    """Return whether requests under all of these policies are served without the store."""
    policies = (config.policies[name] for name in names)
    return not any(
        policy.on_store_error == "closed" and policy.mode == "enforce" for policy in policies
    )
