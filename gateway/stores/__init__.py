"""Where counts live. `base` is the contract; `open_store` finds the store of a URL."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs, urlsplit

from gateway.stores.base import Store
from gateway.stores.memory import DEFAULT_MAX_KEYS, MemoryStore

REDIS_SCHEMES: Final = ("redis", "rediss", "unix")


def open_store(url: str, *, domain: str, deadline_us: int) -> Store:
    """Make the store that a URL names; it connects when it is started.

    Args:
        url: `memory://`, `redis://...` or `mysql://...`, as `gateway.config.store_url` allows.
        domain: the namespace that counts live in.
        deadline_us: how long callers wait for a decision.

    Raises:
        ValueError: no store has that scheme, the URL cannot be used, or the store needs a
            library that is not installed.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        options = parse_qs(parts.query)
        return MemoryStore(int(options.get("max_keys", [str(DEFAULT_MAX_KEYS)])[0]))
    if parts.scheme in REDIS_SCHEMES:
        # Importing redis takes as long as importing the rest of the gateway.
        from gateway.stores.redis import RedisStore

        return RedisStore(url, domain=domain, deadline_us=deadline_us)
    if parts.scheme == "mysql":
        try:
            from gateway.stores.mysql import MySQLStore
        except ImportError:
            hint = "pip install 'sluice-gateway[mysql]'"
            raise ValueError(f"mysql:// needs the driver asyncmy: {hint}") from None

        return MySQLStore(url, domain=domain, deadline_us=deadline_us)
    raise ValueError(f"no store has the scheme {parts.scheme!r}")
