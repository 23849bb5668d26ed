"""Where counts are kept, in sentences; a part of `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.service import StoreConfig
from gateway.config.values.store_url import capabilities_of, explain_store_url
from gateway.config.values.units import format_duration


def explain_store(store: StoreConfig, config: GatewayConfig) -> Iterator[str]:
    """Where counts are kept, who shares them, and what happens if that place is away."""
    can = capabilities_of(store.url)
    yield from explain_store_url(store.url, config.domain)
    if can.is_gatekeeper:
        return
    if not can.is_shared:
        if config.server.workers != 1:
            patience = format_duration(store.deadline_of_workers)
            yield (
                f"Its workers are one limiter; a decision that takes longer than {patience} is "
                "left to the policy's on_store_error."
            )
        return
    share = "the number of gateways last seen there" if store.share == "auto" else str(store.share)
    alone = f"divides limits by {share}"
    if not can.knows_gateways and store.share == "auto":
        alone = (
            "takes whole limits, unless store.share says how many there are: no ratio server knows"
        )
    yield (
        f"If it takes longer than {format_duration(store.deadline)}, the request goes on without "
        f"it, as its policy says; alone, a gateway {alone}."
    )
