"""Where counts are kept, in sentences; a part of `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.service import StoreConfig
from gateway.config.values.store_url import parse_store_url
from gateway.config.values.units import format_duration
from gateway.systems.throttr.requests_v5 import USUAL_SIZE


def explain_store(store: StoreConfig, config: GatewayConfig) -> Iterator[str]:
    """Where counts are kept, who shares them, and what happens if that place is away."""
    url = parse_store_url(store.url)
    if url.kind == "memory":
        keys = url.options.get("max_keys")
        bound = f", {int(keys):,} keys at most" if keys else ""
        yield f"Counts are kept in this gateway's memory{bound}; other gateways have their own."
        if config.server.workers != 1:
            patience = format_duration(store.deadline_of_workers)
            yield (
                f"Its workers are one limiter; a decision that takes longer than {patience} is "
                "left to the policy's on_store_error."
            )
        return
    if url.kind == "smockron":
        share = url.options.get("rejected", "10%")
        yield (
            f"This is a gatekeeper of Smockron's master at {url.place}: it lets requests pass "
            f"until it hears otherwise, and reports them, and {share} of those that it refuses."
        )
        yield "While the master is away nobody new is held."
        return
    where = {
        "redis": f"Redis at {url.place}, database {url.database}",
        "sentinel": f"Redis, database {url.database}, wherever the Sentinels at {url.place} say "
        f"that the primary of {url.service} is",
        "cluster": f"the Redis Cluster that {url.place} belongs to",
        "mysql": f"MySQL or MariaDB at {url.place}, database {url.database}",
        "throttr": f"the Throttr server at {url.place}, whose numbers have "
        f"{url.options.get('size', USUAL_SIZE)} bits",
        "ratio": f"the ratio server at {url.place}, by a limit of its own, as owner "
        f"{url.options.get('owner', config.domain)}",
    }.get(url.kind, f"{url.kind}://{url.place}")
    yield f"Counts are kept in {where}, shared by all gateways of domain {config.domain}."
    if url.kind == "redis" and "ratio" in url.options:
        policy = url.options["ratio"]
        yield f"Those of policy {policy} are kept where a ratio server keeps and shares them."
    share = "the number of gateways last seen there" if store.share == "auto" else str(store.share)
    alone = f"divides limits by {share}"
    if url.kind == "ratio" and store.share == "auto":
        alone = (
            "takes whole limits, unless store.share says how many there are: no ratio server knows"
        )
    yield (
        f"If it takes longer than {format_duration(store.deadline)}, the request goes on without "
        f"it, as its policy says; alone, a gateway {alone}."
    )
