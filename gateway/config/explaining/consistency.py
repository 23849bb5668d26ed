"""What a policy's consistency promises, in numbers, and what a move between stores means."""

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
            "  How many pass at once is the master's to say, and it says so afterwards; who has to "
            "wait has turns at this rate."
        )
        return
    gateways = None if store.share == "auto" else store.share
    terms = policy.terms
    if isinstance(terms, Leased):
        lifetime = format_duration(terms.lifetime_us)
        yield (
            "  Each gateway takes some tokens of a key at a time and spends them within "
            f"{lifetime} without asking the store; what is left is returned."
        )
        for line in policy.limits:
            yield f"  {line.text}: {_leased(line, terms, gateways)}."
    elif isinstance(terms, Eventual):
        yield (
            "  Each gateway decides from what it last heard, and tells the store every "
            f"{format_duration(terms.interval_us)} what it let through; what was too much is "
            "held against the key for one period at most."
        )
        number = "the number of gateways" if gateways is None else f"{gateways}"
        yield (
            f"  Until they have heard of each other, {number} times the limit may pass; so it is "
            "while the store does not answer."
        )


def explain_migration(config: GatewayConfig) -> Iterator[str]:
    """What moves to another store, and how long that takes; nothing if nothing moves."""
    migrate = config.store.migrate
    if migrate is None:
        return
    whose = f"of the keys of {', '.join(migrate.policies)}" if migrate.policies else "of all keys"
    patience = format_duration(config.store.deadline // 2)
    yield (
        f"Counts move to {redact(migrate.to)}: {migrate.share} {whose} are held to both stores. "
        f"While the new one does not answer within {patience}, the old one decides."
    )
    wait = " and ".join(_waits(config.policies))
    if wait:
        yield (
            "Once every gateway holds 100% of all keys to both, the new store knows all that "
            f"counts {wait}; a decision that it misses begins that time anew."
        )


def _waits(policies: Mapping[str, PolicyConfig]) -> Iterator[str]:
    """After what time, or event, a store that sees everything knows everything."""
    longest_us, text = 0, ""
    lasting = ""
    for name, policy in policies.items():
        for line in policy.limits:
            limit = line.limit
            if isinstance(policy.terms, Eventual):
                # What was too much is held against a key for up to one period more.
                limit = replace(limit, max_wait_us=max(limit.max_wait_us, limit.period_us))
            horizon = horizon_us(limit)
            if horizon is None:
                lasting = lasting or f"{line.text} of policy {name}"
            elif horizon > longest_us:
                longest_us, text = horizon, f"{line.text} of policy {name}"
    if text:
        yield f"after {format_duration(longest_us)} ({text})"
    if lasting:
        yield f"when the longest request then under way has ended ({lasting})"


def _leased(line: LimitLine, terms: Leased, gateways: int | None) -> str:
    size = terms.size(line.limit)
    tokens = "1 token" if size == 1 else f"{size:,} tokens"
    most = leased_excess(line.limit, terms, gateways)
    if most == 0:
        return f"leases of {tokens} that end with their window; nothing more than the limit passes"
    if gateways is not None:
        number = f"{gateways} gateways" if gateways > 1 else "1 gateway"
        return f"leases of {tokens}; with {number} at most {most:,} more may pass in any window"
    if most <= size:
        return f"leases of {tokens}; at most {most:,} more may pass in any window"
    return (
        f"leases of {tokens}; at most {size:,} more for each gateway may pass in any window, "
        f"and {most:,} in all"
    )
