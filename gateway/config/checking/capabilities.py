"""Which parts of a configuration its store supports, by the store's URL, without connecting.

A policy that the store cannot keep is a problem of the configuration, not of the first request.
What all stores have in common is here; the limits of one system are in its `capabilities.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.capabilities import CapabilityChecks
from gateway.config.models.costs import cost_words
from gateway.config.models.gateway import GatewayConfig, PolicyConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.store_url import capabilities_of, parse_store_url
from gateway.systems.envoy import capabilities as envoy
from gateway.systems.ratio import capabilities as ratio
from gateway.systems.smockron import capabilities as smockron
from gateway.systems.smockron.capabilities import of_masters_only
from gateway.systems.throttr import capabilities as throttr

SYSTEMS: Final[dict[str, CapabilityChecks]] = {
    "envoy": envoy.CHECKS,
    "ratio": ratio.CHECKS,
    "smockron": smockron.CHECKS,
    "throttr": throttr.CHECKS,
}
"""By the system, which is also the `kind` of a store that it is."""


def unsupported(config: GatewayConfig) -> Iterator[Finding]:
    """Yield what the stores of a configuration cannot keep of its policies and listeners."""
    yield from _unsupported(config, config.store.url, tuple(config.policies))
    migrate = config.store.migrate
    if migrate is not None:
        yield from _unsupported(config, migrate.to, migrate.policies or tuple(config.policies))
    for checks in SYSTEMS.values():
        yield from checks.of_config(config)
    yield from _queues_without_turns(config)


def _unsupported(config: GatewayConfig, url: str, names: tuple[str, ...]) -> Iterator[Finding]:
    store = parse_store_url(url)
    checks = SYSTEMS.get(store.kind)
    elsewhere = of_masters_only(config)
    for name in names:
        if name not in config.policies or name in elsewhere:
            continue
        policy = config.policies[name]
        found = [*_unsupported_by(url, policy)]
        if checks is not None and checks.of_policy is not None:
            found += checks.of_policy(store, policy)
        for finding in found:
            yield finding._replace(path=("policies", name, *finding.path))


def _unsupported_by(url: str, policy: PolicyConfig) -> Iterator[Finding]:
    """Yield what of a policy a store cannot keep; paths begin below the policy."""
    can = capabilities_of(url)
    if can.only_mode and policy.consistency != can.only_mode:
        hint = f"set consistency: {can.only_mode}, or use another kind of store"
        yield Finding(("consistency",), can.why_mode.format(mode=policy.consistency), hint)
    for word in () if can.has_costs else cost_words(policy):
        message = f"{can.server} counts each request of a route alike, and at once"
        yield Finding((word, KEY), message, f"remove {word}, or use another kind of store")
    if policy.queue is not None and not can.has_turns:
        message = f"{can.server} has no turns, so requests cannot wait for one"
        yield Finding(("queue", KEY), message, "set queue: off, or use another kind of store")


def _queues_without_turns(config: GatewayConfig) -> Iterator[Finding]:
    """Yield queues of eventual policies in stores that are not asked before requests pass."""
    if capabilities_of(config.store.url).is_gatekeeper:
        return
    for name, policy in config.policies.items():
        if policy.consistency == "eventual" and policy.queue is not None:
            message = "the store assigns turns, and an eventual policy does not ask it"
            yield Finding(("policies", name, "queue", KEY), message, "leave the queue out")
