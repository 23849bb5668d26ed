"""Which stores can keep what Envoy asks about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.store_url import parse_store_url

_SINGLE: Final = {
    "ratio": "its servers are asked about one call of one limit at a time",
    "smockron": "its masters are told afterwards",
}
"""Kinds of stores that cannot decide on several descriptors at once, and why."""


def unfit_for_envoy(config: GatewayConfig) -> Iterator[Finding]:
    """Stores that cannot decide on the descriptors of a request together."""
    migrate = config.store.migrate
    urls = (config.store.url, *((migrate.to,) if migrate is not None else ()))
    kinds = [parse_store_url(url).kind for url in urls]
    for index, listener in enumerate(config.listeners):
        if listener.envoy_rls is None:
            continue
        for kind in kinds:
            if kind in _SINGLE:
                message = f"{kind} cannot decide on the descriptors of a request together: "
                hint = "store: memory:// or redis://...; or another gateway for Envoy"
                yield Finding(("listeners", index, "envoy_rls", KEY), message + _SINGLE[kind], hint)
