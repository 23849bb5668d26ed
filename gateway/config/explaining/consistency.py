"""The guarantees of a policy's consistency, in numbers, and the meaning of a migration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import PolicyConfig
from gateway.config.models.service import StoreConfig
from gateway.config.values.redaction import redact
from gateway.config.values.store_url import capabilities_of
from gateway.config.values.types import LimitLine
from gateway.config.values.units import format_duration
from gateway.limits.consistency_mode import Eventual, Leased, leased_excess
from gateway.limits.horizon import horizon_us


def explain_consistency(policy: PolicyConfig, store: StoreConfig) -> Iterator[str]:
    """Sentences about how much more than its limits a policy may let through; none if strict."""
    if capabilities_of(store.url).is_gatekeeper:
        yield (
            "  The master decides how many requests pass, and reports it afterwards; "
            "requests that must wait get turns at this rate."
        )
        return
    gateways = None if store.share == "auto" else store.share
    terms = policy.terms
    if isinstance(terms, Leased):
        lifetime = format_duration(terms.lifetime_us)
        yield (
            "  Each gateway takes some tokens of a key at a time and spends them within "
            f"{lifetime} without asking the store; unspent tokens are returned."
        )
        for line in policy.limits:
            yield f"  {line.text}: {_leased(line, terms, gateways)}."
    elif isinstance(terms, Eventual):
        yield (
            "  Each gateway decides from the last known counts, and reports what it "
            f"admitted to the store every {format_duration(terms.interval_us)}; an excess "
            "counts against the key for at most one period."
        )
        number = "the number of gateways" if gateways is None else f"{gateways}"
        yield (
            f"  Until gateways know of each other's requests, {number} times the limit "
            "may pass; the same applies while the store is unavailable."
        )


def explain_migration(config: GatewayConfig) -> Iterator[str]:
    """Describe what moves to another store, and how long that takes; nothing if nothing moves."""
    migrate = config.store.migrate
    if migrate is None:
        return
    whose = f"of the keys of {', '.join(migrate.policies)}" if migrate.policies else "of all keys"
    patience = format_duration(config.store.deadline // 2)
    yield (
        f"Counts move to {redact(migrate.to)}: {migrate.share} {whose} are limited by "
        f"both stores. While the new one does not reply within {patience}, the old one "
        "decides."
    )
    wait = " and ".join(_waits(config.policies))
    if wait:
        yield (
            "Once all gateways use both stores for 100% of all keys, the new store has "
            f"all relevant counts {wait}; a decision that it misses restarts that time."
        )


def _waits(policies: Mapping[str, PolicyConfig]) -> Iterator[str]:
    """Yield the time, or event, after which a store that receives all decisions has all counts."""
    longest_us, text = 0, ""
    lasting = ""
    for name, policy in policies.items():
        for line in policy.limits:
            limit = line.limit
            if isinstance(policy.terms, Eventual):
                # An excess counts against a key for up to one period more.
                limit = replace(limit, max_wait_us=max(limit.max_wait_us, limit.period_us))
            horizon = horizon_us(limit)
            if horizon is None:
                lasting = lasting or f"{line.text} of policy {name}"
            elif horizon > longest_us:
                longest_us, text = horizon, f"{line.text} of policy {name}"
    if text:
        yield f"after {format_duration(longest_us)} ({text})"
    if lasting:
        yield f"when the longest request then in flight has ended ({lasting})"


def _leased(line: LimitLine, terms: Leased, gateways: int | None) -> str:
    size = terms.size(line.limit)
    tokens = "1 token" if size == 1 else f"{size:,} tokens"
    most = leased_excess(line.limit, terms, gateways)
    if most == 0:
        return f"leases of {tokens} that end with their window; the limit is never exceeded"
    if gateways is not None:
        number = f"{gateways} gateways" if gateways > 1 else "1 gateway"
        return (
            f"leases of {tokens}; with {number}, at most {most:,} more than the limit may "
            "pass in any window"
        )
    if most <= size:
        return f"leases of {tokens}; at most {most:,} more than the limit may pass in any window"
    return (
        f"leases of {tokens}; in any window, at most {size:,} more than the limit may "
        f"pass for each gateway, and {most:,} in all"
    )
