"""Where counts live. `base` is the contract; `open_store` finds the store of a URL.

A store is named by the scheme of its URL. `STORES` has those that come with the gateway; other
distributions add theirs by an entry point of the group `sluice.stores`, whose name is the
scheme.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import parse_qs

from gateway.base.errors import ConfigError, Problem
from gateway.base.install_hint import install_hint
from gateway.stores.base import Store
from gateway.stores.memory.store import DEFAULT_MAX_KEYS, MemoryStore
from gateway.stores.urls import split_url

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "sluice.stores"
"""The group of entry points under which other distributions offer stores."""

STORES: Final[dict[str, str]] = {
    "memory": "gateway.stores:open_memory",
    "redis": "gateway.stores.redis.store:RedisStore",
    "rediss": "gateway.stores.redis.store:RedisStore",
    "unix": "gateway.stores.redis.store:RedisStore",
    "redis+sentinel": "gateway.stores.redis.store:RedisStore",
    "rediss+sentinel": "gateway.stores.redis.store:RedisStore",
    "redis+cluster": "gateway.stores.redis.cluster:RedisClusterStore",
    "rediss+cluster": "gateway.stores.redis.cluster:RedisClusterStore",
    "mysql": "gateway.stores.mysql.store:MySQLStore",
    "smockron": "gateway.systems.smockron.store:SmockronStore",
    "throttr+v5": "gateway.systems.throttr.store:ThrottrStore",
    "ratio": "gateway.systems.ratio.store:RatioStore",
}
"""From the scheme of a URL to the class that makes its store, imported when it is needed.

It is called as `Class(url, domain=..., deadline_us=...)`, raises `ValueError` if the URL cannot
be used, and connects in `start`.
"""


_EXTRAS: Final = {"ratio": "grpc", "smockron": "zmq"}
"""What brings the library of a scheme, where it has another name."""


class StoreMaker(Protocol):
    """Makes a store; it connects when it is started."""

    def __call__(self, url: str, *, domain: str, deadline_us: int) -> Store:
        """See `open_store`."""


def open_store(url: str, *, domain: str, deadline_us: int) -> Store:
    """Make the store that a URL names; it connects when it is started.

    Args:
        url: such as `memory://`, `redis://...` or `mysql://...`, as
            `gateway.config.values.store_url` allows.
        domain: the namespace that counts live in.
        deadline_us: how long callers wait for a decision.

    Raises:
        ConfigError: no store has that scheme, or the one that has it cannot be used.
    """
    return find_store(url)(url, domain=domain, deadline_us=deadline_us)


def find_store(url: str) -> StoreMaker:
    """What makes the store that a URL names, loaded: making it reads no more files.

    Raises:
        ConfigError: no store has that scheme, or the one that has it cannot be used.
    """
    scheme = split_url(url).scheme
    make = _builtin(scheme) if scheme in STORES else _from_elsewhere(scheme)

    def make_store(url: str, *, domain: str, deadline_us: int) -> Store:
        try:
            store: object = make(url, domain=domain, deadline_us=deadline_us)
        except (TypeError, ValueError) as error:
            raise _problem(f"the URL of the store cannot be used: {error}") from error
        if not isinstance(store, Store):
            raise _problem(
                f"{type(store).__qualname__}, which {scheme}:// stands for, is no store",
                "gateway.stores.base.Store says what one has",
            )
        return store

    return make_store


def offered() -> dict[str, EntryPoint]:
    """Stores of other distributions, by scheme; ours cannot be replaced."""
    # Few need it, and importing it takes as long as reading a configuration.
    from importlib.metadata import entry_points

    found = entry_points(group=GROUP)
    return {entry.name: entry for entry in found if entry.name not in STORES}


def open_memory(url: str, *, domain: str, deadline_us: int) -> MemoryStore:  # noqa: ARG001
    """The store of `memory://?max_keys=...`, which nobody shares."""
    options = parse_qs(split_url(url).query)
    max_keys = int(options.get("max_keys", [str(DEFAULT_MAX_KEYS)])[0])
    more = f"memory://?max_keys={4 * max_keys}"
    remedy = f"a store.url of {more} has room for four times as many, Redis or MySQL for more"
    return MemoryStore(max_keys, remedy=remedy)


def _builtin(scheme: str) -> Any:
    module, _, name = STORES[scheme].partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        extra = _EXTRAS.get(scheme, scheme.partition("+")[0])
        raise _problem(
            f"{scheme}:// needs a library that is not installed: {error.name}",
            install_hint(extra),
        ) from error


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
        # Foreign code: whatever it raises, it is the operator who has to look at it.
        message = f"{entry.value}, which {scheme}:// stands for, cannot be loaded"
        raise _problem(f"{message}: {type(error).__name__}: {error}") from error


def _problem(message: str, hint: str = "") -> ConfigError:
    return ConfigError([Problem("store", 0, 0, "", message, hint)])
