"""From a checked configuration to its store, and to the decider that asks it."""

from __future__ import annotations

from collections.abc import Callable

from gateway.config.consistency import parts
from gateway.config.models import GatewayConfig
from gateway.decider import Decider
from gateway.metrics import GatewayMetrics, StoreMetrics
from gateway.stores import find_store
from gateway.stores.base import Store
from gateway.stores.moving import chosen, moving_store


def store_of(config: GatewayConfig, metrics: GatewayMetrics) -> Callable[[], Store]:
    """What makes the store that counts are kept in; both, while they move.

    The one that they move to has counters of its own, under the name `new`.

    It reads files now, because an event loop should not have to wait for that, and none when it
    is called.

    Raises:
        ConfigError: no store has the scheme of the URL, or the one that has it cannot be used;
            also when the store is made.
    """
    settings = config.store
    migrate, domain, deadline_us = settings.migrate, config.domain, settings.deadline
    make_old = find_store(settings.url)
    make_new = find_store(migrate.to) if migrate is not None else None

    def make() -> Store:
        old = make_old(settings.url, domain=domain, deadline_us=deadline_us)
        if migrate is None or make_new is None:
            return old
        new = make_new(migrate.to, domain=domain, deadline_us=deadline_us)
        is_moving = chosen(parts(migrate.share), migrate.policies)
        return moving_store(
            old, new, is_moving, deadline_us=deadline_us, metrics=metrics.store("new")
        )

    return make


def decider_of(config: GatewayConfig, store: Store, metrics: StoreMetrics) -> Decider:
    """What asks a store as the configuration says; to be made inside a running event loop."""
    settings = config.store
    return Decider(
        store,
        deadline_us=settings.deadline,
        share=None if settings.share == "auto" else settings.share,
        max_waiting=config.server.max_waiting,
        metrics=metrics,
        terms=[policy.terms for policy in config.policies.values() if policy.terms],
    )
