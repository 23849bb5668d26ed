"""Makes the store that a URL names; its module is imported only then.

The scheme of a URL names the store. `kinds` lists those that come with the gateway; other
distributions add theirs by an entry point of the group `sluice.stores`, whose name is the scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Protocol

from gateway.base.errors import ConfigError, Problem
from gateway.base.install_hint import install_hint
from gateway.observe.metrics import MemoryMetrics
from gateway.stores.base import Store
from gateway.stores.kinds import STORES, StoreKind, offered
from gateway.stores.memory.store import DEFAULT_MAX_KEYS, MemoryStore
from gateway.stores.urls import read_parts, split_url


class StoreMaker(Protocol):
    """Makes a store; it connects when it is started."""

    def __call__(self, url: str, *, domain: str, deadline_us: int) -> Store:
        """See `open_store`."""


def open_store(url: str, *, domain: str, deadline_us: int) -> Store:
    """Return the store that a URL names; it connects when it is started.

    Args:
        url: such as `memory://`, `redis://...` or `mysql://...`, as
            `gateway.config.values.store_url` allows.
        domain: the namespace of counts.
        deadline_us: how long requests wait for a decision.

    Raises:
        ConfigError: no store has that scheme, or the store cannot be used.
    """
    return find_store(url)(url, domain=domain, deadline_us=deadline_us)


def find_store(url: str) -> StoreMaker:
    """Return the maker of the store that a URL names, loaded: calling it reads no more files.

    Raises:
        ConfigError: no store has that scheme, or the store cannot be used.
    """
    scheme = split_url(url).scheme
    kind = STORES.get(scheme)
    make = _builtin(scheme, kind) if kind is not None else _from_elsewhere(scheme)

    def make_store(url: str, *, domain: str, deadline_us: int) -> Store:
        try:
            store: object = make(url, domain=domain, deadline_us=deadline_us)
        except (TypeError, ValueError) as error:
            raise _problem(f"the URL of the store cannot be used: {error}") from error
        if not isinstance(store, Store):
            raise _problem(
                f"{type(store).__qualname__}, the store for {scheme}://, is not a Store",
                "see gateway.stores.base.Store",
            )
        return store

    return make_store


def open_memory(
    url: str,
    *,
    domain: str,  # noqa: ARG001
    deadline_us: int,  # noqa: ARG001
    new_counters: Callable[[str], MemoryMetrics] = lambda _: MemoryMetrics(),
) -> MemoryStore:
    """Return the store of `memory://?max_keys=...`.

    Args:
        url: as given.
        domain: not used: no other gateway sees its keys.
        deadline_us: not used: it answers immediately.
        new_counters: as in `MemoryStore`.
    """
    max_keys, advice = _room(url)
    return MemoryStore(max_keys, advice=advice, new_counters=new_counters)


def reconfigure_memory(store: MemoryStore, url: str) -> None:
    """Apply the options of another URL to the store of `memory://`, which keeps its counts."""
    store.reconfigure(*_room(url))


def _room(url: str) -> tuple[int, str]:
    """Return how many keys there may be, and what the operator can do when that is too few."""
    max_keys = int(read_parts(url).options.get("max_keys", DEFAULT_MAX_KEYS))
    more = f"memory://?max_keys={4 * max_keys}"
    advice = f"a store.url of {more} has room for four times as many, Redis or MySQL for more"
    return max_keys, advice


def _builtin(scheme: str, kind: StoreKind) -> Any:
    module, _, name = kind.maker.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        message = f"{scheme}:// needs a library that is not installed: {error.name}"
        raise _problem(message, install_hint(kind.library)) from error


def _from_elsewhere(scheme: str) -> Any:
    others = offered()
    if scheme not in others:
        known = [*STORES, *others]
        near = get_close_matches(scheme, known, 1)
        hint = f"did you mean {near[0]}://?" if near else f"known: {', '.join(known)}"
        raise _problem(f"no store has the scheme {scheme!r}", hint)
    entry = others[scheme]
    try:
        return entry.load()
    except Exception as error:
        # Code of another distribution: the operator must see any error that it raises.
        message = f"{entry.value}, the store for {scheme}://, cannot be loaded"
        raise _problem(f"{message}: {type(error).__name__}: {error}") from error


def _problem(message: str, hint: str = "") -> ConfigError:
    return ConfigError([Problem("store", 0, 0, "", message, hint)])
