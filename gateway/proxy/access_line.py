"""What the access log says of an exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.observe.logs import AccessEntry
    from gateway.proxy.exchange import Exchange


def fill_in(entry: AccessEntry, exchange: Exchange, duration_us: int = 0) -> AccessEntry:
    """Write an exchange into an entry; return the entry."""
    request, ruling = exchange.request, exchange.ruling
    entry.client = request.client
    entry.method = request.method
    entry.host = request.raw_host
    entry.path = request.target
    if ruling is None:
        entry.route = entry.policy = ""
        entry.decision = "none"
        entry.wait_us = 0
        entry.trials = ""
    else:
        entry.route = ruling.route.name
        entry.policy = ruling.policy
        entry.decision = ruling.decision
        entry.wait_us = ruling.wait_us
        if ruling.route.logged_target is not None:
            entry.path = ruling.route.logged_target(request.target)
        entry.trials = ",".join(ruling.trials) if ruling.trials else ""
    entry.upstream = exchange.upstream_name
    entry.upstream_us = exchange.upstream_us
    entry.status = exchange.status
    entry.body_bytes = exchange.sent
    entry.duration_us = duration_us
    entry.error = exchange.error
    entry.bytes_received = exchange.received
    return entry
