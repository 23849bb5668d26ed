"""The URL of Smockron's master: `smockron://host[:port][?rejected=10%&domain=...]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.stores.capabilities import Capabilities
from gateway.stores.urls import (
    HOST_PATTERN,
    MAX_PORT,
    Option,
    StoreUrl,
    StoreUrlError,
    UrlParts,
    any_text,
    check_options,
    lone_host,
    options_pattern,
    usable,
)
from gateway.systems.smockron.codec import DEFAULT_PORT, MAX_NAME

USUAL_SHARE: Final = "10%"
"""The share of refused requests that are reported: the master does not count them."""


def _check_share(value: str) -> tuple[str, str] | None:
    share = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)%", value)
    if share is None or float(share[1]) > 100:
        return "is {}", "the share of refused requests that are reported, from 0% to 100%"
    return None


_OPTIONS: Final = {
    "domain": any_text(),
    "rejected": Option(r"[0-9]+(\.[0-9]{1,3})?%", _check_share),
}


class MasterAddress(NamedTuple):
    """One master, and what is reported to it.

    Attributes:
        host: its name or address.
        port: where it receives; it publishes at the port above.
        domain: the domain of all limits; empty if each has its policy's name.
        share: of refused requests that are reported, from 0 to 1.
    """

    host: str
    port: int
    domain: str
    share: float


class SmockronUrls:
    """See `gateway.stores.kinds.StoreKind`."""

    kind: str = "smockron"
    schemes: tuple[str, ...] = ("smockron",)
    maker: str = "gateway.systems.smockron.store:SmockronStore"
    library: str = "zmq"
    pattern: str = rf"smockron://{HOST_PATTERN}/?{options_pattern(_OPTIONS)}"
    secrets: frozenset[str] = frozenset()
    capabilities: Capabilities = Capabilities(
        server="a gatekeeper",
        is_gatekeeper=True,
        only_mode="eventual",
        why_mode="a gatekeeper admits first and reports afterwards, so policies cannot be {mode}",
        why_apart="its masters receive reports afterwards",
        keeps_reports=True,
        has_costs=False,
        can_peek=False,
    )

    def read(self, url: UrlParts) -> StoreUrl:
        """See `UrlRules.read`."""
        host = lone_host(url, "a master of Smockron", f"{url.scheme}://127.0.0.1:{DEFAULT_PORT}")
        check_options(url.options, _OPTIONS)
        if len(url.options.get("domain", "").encode()) > MAX_NAME:
            raise StoreUrlError("the name of the domain is too long", f"at most {MAX_NAME} bytes")
        if (host.port or DEFAULT_PORT) >= MAX_PORT:
            message = "the master publishes at the next port, and there is none"
            raise StoreUrlError(message, "a lower port")
        return StoreUrl(self.kind, host.shown(DEFAULT_PORT), 0, url.options)

    def explain(self, url: StoreUrl, domain: str) -> Sequence[str]:
        """See `UrlRules.explain`."""
        del domain  # Masters have no such namespace.
        share = url.options.get("rejected", USUAL_SHARE)
        what = (
            f"This is a gatekeeper of Smockron's master at {url.place}: it admits requests until "
            f"the master holds their client, and reports them and {share} of the refused ones."
        )
        return what, "While the master is unavailable, no further identifiers are held."


SMOCKRON: Final = SmockronUrls()


def parse_smockron_url(url: str) -> MasterAddress:
    """Return the master that a URL names.

    Raises:
        ValueError: it cannot be used.
    """
    return usable(url, _read, "smockron://127.0.0.1:10004")


def _read(parts: UrlParts) -> MasterAddress:
    said = SMOCKRON.read(parts)
    host = parts.hosts[0]
    share = said.options.get("rejected", USUAL_SHARE)
    return MasterAddress(
        host.name,
        host.port or DEFAULT_PORT,
        said.options.get("domain", ""),
        float(share.removesuffix("%")) / 100,
    )
