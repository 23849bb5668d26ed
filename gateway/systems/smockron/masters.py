"""What a master of Smockron cannot do: follow some limits, and keep histories in some stores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.store_url import parse_store_url
from gateway.limits.reported import ALGORITHMS

IN_REDIS: Final = frozenset({"redis", "sentinel", "cluster"})
IN_MEMORY: Final = frozenset({"memory", "smockron"})
"""A gateway that is a gatekeeper has no store of its own, so a master in it uses memory."""


def of_masters_only(config: GatewayConfig) -> set[str]:
    """Policies of domains that no request is held to here."""
    own = {name for listener in _masters(config) for name in listener.policies}
    others = {name for route in config.routes for name in route.policies}
    for listener in config.listeners:
        if listener.smockron is None:
            others.update(listener.policies)
    return own - others


def unfit_for_masters(config: GatewayConfig) -> Iterator[Finding]:
    """Limits that cannot follow what others let through, and stores that cannot keep it."""
    kind = parse_store_url(config.store.url).kind
    for index, listener in enumerate(config.listeners):
        if listener.smockron is None:
            continue
        if kind not in IN_REDIS | IN_MEMORY:
            message = f"{kind} cannot keep what a master of Smockron hears"
            hint = "memory:// for one master, redis:// for several"
            yield Finding(("listeners", index, "smockron", KEY), message, hint)
        for name in listener.policies:
            policy = config.policies.get(name)
            for number, line in enumerate(policy.limits if policy is not None else ()):
                if line.limit.algorithm in ALGORITHMS:
                    continue
                message = f"{line.limit.algorithm} cannot follow what gatekeepers report"
                hint = f"algorithm: {' or '.join(ALGORITHMS)}"
                yield Finding(("policies", name, "limits", number), f"{message}: {line.text}", hint)


def _masters(config: GatewayConfig) -> list[FrontendConfig]:
    return [listener for listener in config.listeners if listener.smockron is not None]
