"""What a store can keep, where that is not everything: told from its URL, without asking it.

Redis, MySQL and the memory keep every limit. A server that speaks a protocol of its own has one
algorithm, or numbers of one size; a policy that it could not keep is a problem of the
configuration, and not of the first request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gateway.config.models.gateway import GatewayConfig, PolicyConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.store_url import parse_store_url
from gateway.stores.urls import StoreUrl
from gateway.systems.envoy.capabilities import unfit_for_envoy
from gateway.systems.ratio.capabilities import misfits_of_ratio, not_together, shared_with_ratio
from gateway.systems.smockron.capabilities import (
    misfits_of_gatekeepers,
    queues_without_turns,
    unfit_for_gatekeepers,
)
from gateway.systems.smockron.masters import of_masters_only
from gateway.systems.throttr.capabilities import misfits_of_throttr
from gateway.systems.throttr.config import KEPT_IN

Misfits = Callable[[StoreUrl, PolicyConfig], Iterator[Finding]]
"""What of a policy a store cannot keep; paths begin below the policy."""

STORES: Final[dict[str, Misfits]] = {
    "ratio": misfits_of_ratio,
    "smockron": misfits_of_gatekeepers,
    "throttr": misfits_of_throttr,
}
"""By the `kind` of a store's URL; a store that is not here keeps every policy."""


def misfits(config: GatewayConfig) -> Iterator[Finding]:
    """What a store of the configuration cannot keep of the policies that are its own."""
    yield from _misfits(config, config.store.url, tuple(config.policies))
    migrate = config.store.migrate
    if migrate is not None:
        yield from _misfits(config, migrate.to, migrate.policies or tuple(config.policies))
    yield from not_together(config)
    yield from shared_with_ratio(config)
    yield from queues_without_turns(config)
    yield from unfit_for_gatekeepers(config)
    yield from unfit_for_envoy(config)
    yield from _homeless(config)


def _homeless(config: GatewayConfig) -> Iterator[Finding]:
    """Listeners whose clients' records a store cannot keep."""
    store = parse_store_url(config.store.url)
    for index, listener in enumerate(config.listeners):
        if listener.throttr is not None and store.kind not in KEPT_IN:
            message = f"Throttr's records are kept in memory or in Redis, not in {store.kind}"
            hint = "store: memory:// or redis://...; or another gateway for these clients"
            yield Finding(("listeners", index, "throttr", KEY), message, hint)


def _misfits(config: GatewayConfig, url: str, names: tuple[str, ...]) -> Iterator[Finding]:
    store = parse_store_url(url)
    look = STORES.get(store.kind)
    if look is None:
        return
    elsewhere = of_masters_only(config)
    for name in names:
        if name in config.policies and name not in elsewhere:
            for finding in look(store, config.policies[name]):
                yield finding._replace(path=("policies", name, *finding.path))
