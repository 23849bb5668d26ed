"""The kinds of stores: those that come with the gateway, and those of other distributions.

This is the only list of them. It is read to check configurations, so it imports no store and no
library: only the modules for their URLs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gateway.stores.capabilities import Capabilities
from gateway.stores.memory.url import MEMORY
from gateway.stores.mysql.url import MYSQL
from gateway.stores.redis.url import CLUSTER, REDIS, SENTINEL, UNIX
from gateway.stores.urls import UrlRules
from gateway.systems.ratio.store_url import RATIO
from gateway.systems.smockron.store_url import SMOCKRON
from gateway.systems.throttr.store_url import THROTTR

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "sluice.stores"
"""The group of entry points under which other distributions offer stores, by scheme."""


class StoreKind(UrlRules, Protocol):
    """A kind of store that comes with the gateway, and its URLs.

    Attributes:
        kind: its name.
        schemes: the schemes of its URLs.
        maker: module and name of the function that makes the store, imported when it is needed.
            It is called with the URL, `domain` and `deadline_us`; the store connects when it is
            started.
        library: the extra with the library that it needs; empty if it needs none.
        pattern: the pattern of its URLs in the JSON Schema.
        capabilities: what it can do that not every store can.
    """

    kind: str
    schemes: tuple[str, ...]
    maker: str
    library: str
    pattern: str
    capabilities: Capabilities


KINDS: Final[tuple[StoreKind, ...]] = (
    MEMORY,
    REDIS,
    SENTINEL,
    CLUSTER,
    UNIX,
    MYSQL,
    THROTTR,
    RATIO,
    SMOCKRON,
)
STORES: Final[dict[str, StoreKind]] = {scheme: kind for kind in KINDS for scheme in kind.schemes}
"""Kinds of stores by the scheme of a URL."""


def offered() -> dict[str, EntryPoint]:
    """Return the stores of other distributions, by scheme; none replaces one of the gateway's."""
    # Rarely needed, and importing it takes as long as reading a configuration.
    from importlib.metadata import entry_points

    found = entry_points(group=GROUP)
    return {entry.name: entry for entry in found if entry.name not in STORES}


def rules_of(scheme: str) -> UrlRules | None:
    """Return the URL rules of the store of a scheme; None if it has none.

    A store that cannot be loaded has none: `find_store` reports why.
    """
    kind = STORES.get(scheme)
    if kind is not None:
        return kind
    entry = offered().get(scheme)
    if entry is None:
        return None
    try:
        rules: object = getattr(entry.load(), "urls", None)
    except Exception:  # noqa: BLE001 - foreign code, which raises what it likes
        return None
    return rules if isinstance(rules, UrlRules) else None
