"""The URL of the memory store: `memory://?max_keys=100000`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.stores.capabilities import Capabilities
from gateway.stores.urls import (
    StoreUrl,
    StoreUrlError,
    UrlParts,
    check_options,
    options_pattern,
    whole_number,
)

MAX_KEYS: Final = 100_000_000
_OPTIONS: Final = {"max_keys": whole_number(MAX_KEYS)}


class MemoryUrls:
    """See `gateway.stores.kinds.StoreKind`."""

    kind: str = "memory"
    schemes: tuple[str, ...] = ("memory",)
    maker: str = "gateway.stores.opening:open_memory"
    library: str = ""
    pattern: str = f"memory://{options_pattern(_OPTIONS)}"
    secrets: frozenset[str] = frozenset()
    capabilities: Capabilities = Capabilities(
        is_shared=False, keeps_records=True, keeps_reports=True
    )

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        if url.hosts or url.username is not None or url.path.strip("/"):
            hint = "write memory://, with options as in memory://?max_keys=100000"
            raise StoreUrlError("the memory store has no address", hint)
        check_options(url.options, _OPTIONS)
        return StoreUrl(self.kind, "", 0, url.options)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """See `UrlRules.explain`."""
        del domain  # These counts are not shared.
        keys = url.options.get("max_keys")
        bound = f", at most {int(keys):,} keys" if keys else ""
        return (f"Counts are kept in this gateway's memory{bound}; other gateways have their own.",)


MEMORY: Final = MemoryUrls()
