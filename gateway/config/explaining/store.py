"""The store of counts, in sentences; a part of `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.service import StoreConfig
from gateway.config.values.store_url import capabilities_of, explain_store_url
from gateway.config.values.units import format_duration


def explain_store(store: StoreConfig, config: GatewayConfig) -> Iterator[str]:
    """Where counts are kept, which gateways share them, and what happens in an outage."""
    can = capabilities_of(store.url)
    yield from explain_store_url(store.url, config.domain)
    if can.is_gatekeeper:
        return
    if not can.is_shared:
        if config.server.workers != 1:
            patience = format_duration(store.deadline_of_workers)
            yield (
                "Its workers share one limiter; if a decision takes longer than "
                f"{patience}, the policy's on_store_error applies."
            )
        return
    share = "the number of gateways last seen there" if store.share == "auto" else str(store.share)
    alone = f"divides limits by {share}"
    if not can.knows_gateways and store.share == "auto":
        alone = (
            "uses whole limits, unless store.share gives the number of gateways: ratio "
            "servers do not know it"
        )
    yield (
        f"If the store takes longer than {format_duration(store.deadline)}, the policy's "
        f"on_store_error applies; a gateway that decides alone {alone}."
    )
