"""Stores that cannot decide Envoy's requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.capabilities import CapabilityChecks
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.store_url import capabilities_of, parse_store_url


def _unfit(config: GatewayConfig) -> Iterator[Finding]:
    """Yield stores that cannot decide the descriptors of a request together."""
    migrate = config.store.migrate
    urls = (config.store.url, *((migrate.to,) if migrate is not None else ()))
    for index, listener in enumerate(config.listeners):
        if listener.envoy_rls is None:
            continue
        for url in urls:
            why = capabilities_of(url).why_apart
            if why:
                kind = parse_store_url(url).kind
                message = f"{kind} cannot decide on the descriptors of a request together: {why}"
                hint = "store: memory:// or redis://...; or another gateway for Envoy"
                yield Finding(("listeners", index, "envoy_rls", KEY), message, hint)


CHECKS: Final = CapabilityChecks(_unfit)
