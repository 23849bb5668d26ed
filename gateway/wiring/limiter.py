"""Builds the store of a checked configuration, and its decider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypedDict

from gateway.base.errors import ConfigError, Problem, StartError
from gateway.board.board import Seat
from gateway.config.checking.throttlex_checks import tables_url
from gateway.config.models.consistency import parts
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import with_candidates
from gateway.config.values.redaction import redact
from gateway.config.values.store_url import capabilities_of
from gateway.limiter.decider import Decider
from gateway.limits.consistency_mode import Terms
from gateway.limits.key_overrides import KeyOverrides
from gateway.limits.rate import Limit
from gateway.observe.metrics import GatewayMetrics, StoreMetrics
from gateway.routing.keys import identity
from gateway.stores.base import ImmediateStore, PreparedStore, Store
from gateway.stores.memory.store import MemoryStore
from gateway.stores.migrating import MovingStore, chosen, moving_store
from gateway.stores.opening import StoreMaker, find_store
from gateway.systems.smockron.capabilities import of_masters_only
from gateway.wiring.policies import limits_of

if TYPE_CHECKING:
    from gateway.stores.mysql.policies import PolicyReader


def store_of(
    config: GatewayConfig,
    metrics: GatewayMetrics,
    memory: Store | None = None,
    workers: int = 1,
) -> Callable[[], Store]:
    """Return a function that makes the store; during a migration, both stores.

    The new store of a migration has counters of its own, under the name `new`.

    Files are read now, not when the function is called, because an event loop must not wait for
    them.

    Args:
        config: the configuration.
        metrics: the counters of the new store of a migration.
        memory: the store for `memory://`, if there is one already: workers share it, and its counts
            outlive a change of the configuration; None to make it.
        workers: how many processes of this gateway use the store.

    Raises:
        ConfigError: no store has the scheme of the URL, or its store cannot be used; also when the
            function is called.
    """
    settings = config.store
    migrate, domain, deadline_us = settings.migrate, config.domain, settings.deadline
    make_old = _maker(settings.url, memory, workers)
    make_new = _maker(migrate.to, memory, workers) if migrate is not None else None
    limits = limits_by_policy(config)

    def make() -> Store:
        store = make_old(settings.url, domain=domain, deadline_us=deadline_us)
        if migrate is not None and make_new is not None:
            new = make_new(migrate.to, domain=domain, deadline_us=deadline_us)
            is_moving = chosen(parts(migrate.share), migrate.policies)
            counters = metrics.store("new")
            store = moving_store(store, new, is_moving, deadline_us=deadline_us, metrics=counters)
        expect_limits(limits, store)
        show_memory(store, metrics)
        return store

    return make


def load_stores(config: GatewayConfig) -> None:
    """Import what the stores of a configuration are made with; blocks.

    Raises:
        StartError: a store is not known, or lacks a library.
    """
    for path, url in store_urls(config).items():
        try:
            find_store(url)
        except ConfigError as error:
            raise cannot_use_store(path, error) from error


def store_urls(config: GatewayConfig) -> dict[str, str]:
    """Return the URLs of the store, and of the new one of a migration, by their keys."""
    settings = config.store
    urls = {"store.url": settings.url}
    if settings.migrate is not None:
        urls["store.migrate.to"] = settings.migrate.to
    return urls


def cannot_use_store(path: str, error: ConfigError) -> StartError:
    """Return the error for a store that cannot be used, whose URL is at a key."""
    problem = error.problems[0]
    return StartError(problem.path or path, problem.message, problem.hint)


def store_unavailable(config: GatewayConfig) -> StartError:
    """Return the error for a reload whose store does not respond, while the present one does."""
    message = f"{redact(config.store.url)} is not available"
    hint = (
        "check that it runs, and its address and credentials; a restart uses it nevertheless, "
        "with on_store_error until it is available"
    )
    return StartError("store.url", message, hint)


def parts_of(store: Store) -> tuple[Store, ...]:
    """Return the stores that a store is made of: during a migration there are two."""
    return store.parts if isinstance(store, MovingStore) else (store,)


def memory_store_of(store: Store) -> MemoryStore | None:
    """Return the store that keeps counts in this process; None if counts are elsewhere."""
    found = (one for one in parts_of(store) if isinstance(one, MemoryStore))
    return next(found, None)


def show_memory(store: Store, metrics: GatewayMetrics) -> None:
    """Show the keys that a store keeps in this process, if any, in the metrics."""
    memory = memory_store_of(store)
    metrics.memory = memory.memory if memory is not None else {}


def expect_limits(limits: Mapping[str, list[Limit]], store: Store) -> None:
    """Tell a store which limits there are, by the names of policies."""
    for one in parts_of(store):
        if isinstance(one, PreparedStore):
            one.expect(limits)


async def close_store(store: Store, kept: Store | None) -> None:
    """Close a store, but for the part of it that is still in use."""
    if isinstance(store, MovingStore):
        await store.aclose_but(kept)
    elif store is not kept:
        await store.aclose()


def limits_by_policy(config: GatewayConfig) -> dict[str, list[Limit]]:
    """Return the limits that the store decides on, by the names of policies."""
    at_masters = of_masters_only(config)
    return {
        name: limits_of(name, policy)
        for name, policy in with_candidates(config.policies).items()
        if name not in at_masters
    }


def memory_url(config: GatewayConfig) -> str:
    """Return the URL of the memory store; empty if counts are elsewhere."""
    urls = store_urls(config).values()
    return next((url for url in urls if not capabilities_of(url).is_shared), "")


def _maker(url: str, memory: Store | None, workers: int) -> StoreMaker:
    make = find_store(url)
    if memory is None:
        return make
    shared = memory
    can = capabilities_of(url)

    def make_shared(url: str, *, domain: str, deadline_us: int) -> Store:
        if not can.is_shared:
            return shared
        store = make(url, domain=domain, deadline_us=deadline_us)
        if workers > 1 and isinstance(store, ImmediateStore) and not can.is_gatekeeper:
            message = f"{type(store).__qualname__} keeps counts in one process"
            hint = "use server: { workers: 1 }, or a store that processes share"
            raise ConfigError([Problem("store", 0, 0, "", message, hint)])
        return store

    return make_shared


def decider_of(
    config: GatewayConfig,
    store: Store,
    metrics: StoreMetrics,
    workers: int = 1,
    seat: Seat | None = None,
) -> Decider:
    """Return the decider for a store; call it in a running event loop.

    Args:
        config: the configuration.
        store: the store.
        metrics: its counters.
        workers: the minimum number of gateways that share it.
        seat: the place of this process at the workers' board; None if it is the only one.
    """
    return Decider(
        store,
        siblings=workers,
        metrics=metrics,
        seat=seat,
        **_decider_settings(config),
    )


def reconfigure_decider(decider: Decider, config: GatewayConfig) -> None:
    """Let a decider decide as another configuration says, on the same store."""
    decider.reconfigure(**_decider_settings(config))


class _DeciderSettings(TypedDict):
    deadline_us: int
    share: int | None
    max_waiting: int
    terms: list[Terms]
    has_trials: bool


def _decider_settings(config: GatewayConfig) -> _DeciderSettings:
    settings = config.store
    return {
        "deadline_us": settings.deadline,
        "share": None if settings.share == "auto" else settings.share,
        "max_waiting": config.server.max_waiting,
        "terms": [policy.terms for policy in config.policies.values() if policy.terms],
        "has_trials": any(
            policy.mode != "enforce" or policy.candidate is not None
            for policy in config.policies.values()
        ),
    }


def overrides_of(config: GatewayConfig) -> KeyOverrides | None:
    """Return the overrides by key of table policies; None if no policy needs them."""
    ours = (policy.throttlex for policy in config.policies.values())
    return KeyOverrides(identity) if any(one and one.policies == "table" for one in ours) else None


def reader_of(config: GatewayConfig, overrides: KeyOverrides | None) -> PolicyReader | None:
    """Return what keeps the overrides up to date; None if there are none."""
    if overrides is None:
        return None
    # Imported here, because its driver is optional.
    from gateway.stores.mysql.policies import PolicyReader

    return PolicyReader(tables_url(config), overrides)
