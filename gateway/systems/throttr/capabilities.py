"""Policies that a Throttr server supports: fixed windows whose numbers fit into its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.capabilities import CapabilityChecks
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import PolicyConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.store_url import capabilities_of, parse_store_url
from gateway.config.values.types import LimitLine
from gateway.stores.urls import StoreUrl
from gateway.systems.throttr.codec_v5 import SIZES, largest, ttl_of
from gateway.systems.throttr.store_url import size_of


def _unfit(config: GatewayConfig) -> Iterator[Finding]:
    """Yield listeners whose clients' records the store cannot keep."""
    if capabilities_of(config.store.url).keeps_records:
        return
    kind = parse_store_url(config.store.url).kind
    for index, listener in enumerate(config.listeners):
        if listener.throttr is not None:
            message = f"Throttr's records are kept in memory or in Redis, not in {kind}"
            hint = "use store: memory:// or redis://...; or another gateway for these clients"
            yield Finding(("listeners", index, "throttr", KEY), message, hint)


def _unsupported(url: StoreUrl, policy: PolicyConfig) -> Iterator[Finding]:
    """Yield what a Throttr server does not support in a policy; paths begin below the policy."""
    size = size_of(url.options.get("size"))
    if policy.count_refused:
        message = "a Throttr server does not count refused requests"
        yield Finding(("count_refused", KEY), message, "leave it out")
    for index, line in enumerate(policy.limits):
        found = _unsupported_limit(line, size)
        if found is not None:
            message, hint = found
            yield Finding(("limits", index), message, hint)


def _unsupported_limit(line: LimitLine, size: int) -> tuple[str, str] | None:
    """Return why a limit is not supported, and the fix; None if it is supported."""
    limit = line.limit
    if limit.calendar:
        message = f"a Throttr server has no calendar: {line.text}"
        return message, f"such as {limit.count}/day, counted from each client's first request"
    if limit.algorithm != "fixed_window":
        message = f"a Throttr server only has fixed windows, not {limit.algorithm}"
        instead = "use another kind of store"
        if limit.algorithm != "concurrency":
            instead = "use algorithm: fixed_window, or another kind of store"
        return f"{message}: {line.text}", instead
    if limit.count > largest(size):
        message = f"{limit.count} does not fit into the {size} bits of the store's numbers"
        return message, _larger(size, f"at most {largest(size)}")
    if ttl_of(limit.period_us, size) is None:
        message = f"the period is not a whole number of {size} bits in any unit: {line.text}"
        return message, _larger(size, "a rounder period")
    return None


def _larger(size: int, otherwise: str) -> str:
    if size == SIZES[-1]:
        return otherwise
    larger = ", ".join(str(each) for each in SIZES if each > size)
    return f"{otherwise}; or use a server with larger numbers: ?size={larger}"


CHECKS: Final = CapabilityChecks(_unfit, _unsupported)
