"""The store of counts, in sentences; a part of `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.service import StoreConfig
from gateway.config.values.store_url import parse_store_url
from gateway.config.values.units import format_duration
from gateway.systems.throttr.requests_v5 import USUAL_SIZE


def explain_store(store: StoreConfig, config: GatewayConfig) -> Iterator[str]:
    """Describe where counts are kept, who shares them, and what happens in an outage."""
    url = parse_store_url(store.url)
    if url.kind == "memory":
        keys = url.options.get("max_keys")
        bound = f", at most {int(keys):,} keys" if keys else ""
        yield f"Counts are kept in this gateway's memory{bound}; other gateways have their own."
        if config.server.workers != 1:
            patience = format_duration(store.deadline_of_workers)
            yield (
                "Its workers share one limiter; if a decision takes longer than "
                f"{patience}, the policy's on_store_error applies."
            )
        return
    if url.kind == "smockron":
        share = url.options.get("rejected", "10%")
        yield (
            f"This is a gatekeeper of Smockron's master at {url.place}: it admits "
            "requests until the master delays or blocks a client, and reports them, and "
            f"{share} of those that it refuses."
        )
        yield "While the master is unavailable, no further clients are delayed."
        return
    where = {
        "redis": f"Redis at {url.place}, database {url.database}",
        "sentinel": f"Redis, database {url.database}, at the primary of {url.service} according to "
        f"the Sentinels at {url.place}",
        "cluster": f"the Redis Cluster that {url.place} belongs to",
        "mysql": f"MySQL or MariaDB at {url.place}, database {url.database}",
        "throttr": f"the Throttr server at {url.place}, whose numbers have "
        f"{url.options.get('size', USUAL_SIZE)} bits",
        "ratio": f"the ratio server at {url.place}, with that server's own limit, as owner "
        f"{url.options.get('owner', config.domain)}",
    }.get(url.kind, f"{url.kind}://{url.place}")
    yield f"Counts are kept in {where}, shared by all gateways of domain {config.domain}."
    if url.kind == "redis" and "ratio" in url.options:
        policy = url.options["ratio"]
        yield (
            f"Those of policy {policy} are kept in the form of a ratio server, and shared with it."
        )
    share = "the number of gateways last seen there" if store.share == "auto" else str(store.share)
    alone = f"divides limits by {share}"
    if url.kind == "ratio" and store.share == "auto":
        alone = (
            "uses whole limits, unless store.share gives the number of gateways: ratio "
            "servers do not know it"
        )
    yield (
        f"If the store takes longer than {format_duration(store.deadline)}, the policy's "
        f"on_store_error applies; a gateway that decides alone {alone}."
    )
