"""The URL of a ratio server that keeps counts: `ratio://host[:port][?owner=...]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.stores.capabilities import Capabilities
from gateway.stores.urls import (
    HOST_PATTERN,
    StoreUrl,
    StoreUrlError,
    UrlParts,
    any_text,
    check_options,
    kept_in,
    lone_host,
    options_pattern,
    usable,
)

PORT: Final = 50051
_OPTIONS: Final = {"owner": any_text()}


class RatioAddress(NamedTuple):
    """One server, and the owner in all questions; empty for the domain."""

    target: str
    owner: str


class RatioUrls:
    """See `gateway.stores.kinds.StoreKind`."""

    kind: str = "ratio"
    schemes: tuple[str, ...] = ("ratio",)
    maker: str = "gateway.systems.ratio.store:RatioStore"
    library: str = "grpc"
    pattern: str = rf"ratio://{HOST_PATTERN}/?{options_pattern(_OPTIONS)}"
    secrets: frozenset[str] = frozenset()
    capabilities: Capabilities = Capabilities(
        server="a ratio server",
        only_mode="strict",
        why_mode="a ratio server grants one token per call, so limits cannot be {mode}",
        has_turns=False,
        has_costs=False,
        why_apart="its servers check one call of one limit at a time",
        knows_gateways=False,
        can_peek=False,
    )

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        if url.host is None or not url.host.name:
            raise StoreUrlError(
                "the URL of the store must have one host", "for example ratio://127.0.0.1"
            )
        host = lone_host(url, "a ratio server", f"ratio://{{host}}:{PORT}?owner=shop")
        check_options(url.options, _OPTIONS)
        return StoreUrl(self.kind, host.shown(PORT), 0, url.options)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """See `UrlRules.explain`."""
        owner = url.options.get("owner", domain)
        where = f"the ratio server at {url.place}, with that server's own limit, as owner {owner}"
        return (kept_in(where, domain),)


RATIO: Final = RatioUrls()


def parse_ratio_url(url: str) -> RatioAddress:
    """Return the server that a URL names.

    Raises:
        ValueError: it cannot be used.
    """
    return usable(url, _read, "ratio://host:50051?owner=shop")


def _read(parts: UrlParts) -> RatioAddress:
    said = RATIO.read(parts)
    return RatioAddress(said.place, said.options.get("owner", ""))
