"""The URL of a Throttr server that keeps counts: `throttr+v5://host[:port][?size=8|16|32|64]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.stores.capabilities import Capabilities
from gateway.stores.urls import (
    HOST_PATTERN,
    Option,
    StoreUrl,
    StoreUrlError,
    UrlParts,
    check_options,
    kept_in,
    lone_host,
    options_pattern,
    usable,
    whole_number,
)
from gateway.systems.throttr.codec_v5 import SIZES, USUAL_SIZE

PORT: Final = 9000
_SIZES: Final = ", ".join(map(str, SIZES))
_OPTIONS: Final[dict[str, Option]] = {"size": whole_number(max(SIZES), pattern="(8|16|32|64)")}


class ThrottrAddress(NamedTuple):
    """One server: its address, and the bits of its numbers."""

    host: str
    port: int
    size: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port} ({self.size} bits)"


class ThrottrUrls:
    """See `gateway.stores.kinds.StoreKind`."""

    kind: str = "throttr"
    schemes: tuple[str, ...] = ("throttr+v5",)
    maker: str = "gateway.systems.throttr.store:ThrottrStore"
    library: str = ""
    pattern: str = rf"throttr\+v5://{HOST_PATTERN}{options_pattern(_OPTIONS)}"
    secrets: frozenset[str] = frozenset()
    capabilities: Capabilities = Capabilities(
        server="a Throttr server",
        only_mode="strict",
        why_mode=(
            "a Throttr server does not tell gateways of each other, so limits cannot be {mode}"
        ),
        has_turns=False,
        has_costs=False,
        begins_by_clock=False,
    )

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        host = lone_host(url, "a Throttr server", f"{url.scheme}://{{host}}:{PORT}?size=16")
        check_options(url.options, _OPTIONS)
        size = size_of(url.options.get("size"))
        if size not in SIZES:
            hint = f"use the bits of its numbers: {_SIZES}"
            raise StoreUrlError(f"no Throttr server has size {size}", hint)
        return StoreUrl(self.kind, host.shown(PORT), 0, url.options)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """See `UrlRules.explain`."""
        size = size_of(url.options.get("size"))
        where = f"the Throttr server at {url.place}, whose numbers have {size} bits"
        return (kept_in(where, domain),)


THROTTR: Final = ThrottrUrls()


def size_of(said: str | None) -> int:
    """Return the bits of a server's numbers from the option of a URL."""
    return int(said or USUAL_SIZE)


def parse_throttr_url(url: str) -> ThrottrAddress:
    """Return the server that a URL names.

    Raises:
        ValueError: it cannot be used.
    """
    return usable(url, _read, "throttr+v5://127.0.0.1:9000?size=16")


def _read(parts: UrlParts) -> ThrottrAddress:
    said = THROTTR.read(parts)
    host = parts.hosts[0]
    return ThrottrAddress(host.name, host.port or PORT, size_of(said.options.get("size")))
