"""What trusted proxies report about a request: its client, scheme and host, made consistent.

Two families of fields carry this, `X-Forwarded-*` and `Forwarded` (RFC 7239), and proxies write
either or both. Frameworks behind a gateway read either, so both must agree there (RFC 7239, section
7.4). The upstream receives the result of this module in both.

Nearly every proxy writes `X-Forwarded-For`, and many forward a client's `Forwarded` unchanged. So
`Forwarded` counts only if there is no `X-Forwarded-For`, or if both name the same client; and
details that `X-Forwarded-*` has take precedence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.routing.client_address import ClientAddress, address_of, members, parameters
from gateway.routing.fields import Fields

SCHEMES: Final = {
    **dict.fromkeys(("https", "wss", "ssl", "on"), "https"),
    **dict.fromkeys(("http", "ws", "off"), "http"),
}
"""Names of a scheme, in lower case; those of WebSockets are used by some proxies."""

SCHEME_FIELDS: Final = (
    *("x-forwarded-scheme", "x-forwarded-protocol", "x-forwarded-ssl"),
    *("x-url-scheme", "front-end-https"),
)
"""Other fields that carry the scheme in place of `X-Forwarded-Proto`, and that frameworks read."""

ORIGIN_FIELDS: Final = frozenset(
    {
        # And all others that begin with `X-Forwarded-`.
        *("x-forwarded", "forwarded-for", "x-real-ip", "x-client-ip", "x-cluster-client-ip"),
        *("true-client-ip", "cf-connecting-ip", "cf-pseudo-ipv4", "cf-visitor"),
        # Other fields that applications read, in frameworks and in widely copied code.
        *("client-ip", "proxy-client-ip", "wl-proxy-client-ip", "fastly-client-ip"),
        *("cloudfront-forwarded-proto", "x-host", "x-original-host"),
        *("x-original-url", "x-rewrite-url"),
        # The client's certificate as verified by a proxy: RFC 9440, section 4, and Envoy's own.
        *("client-cert", "client-cert-chain"),
    }
)
"""Fields about the origin of a request; forwarded only if a trusted proxy sent them."""

TOLD_FIELDS: Final = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded")
"""The two families, always written anew for the upstream."""

_CACHE: Final = 4096
_is_host: Final = re.compile(
    r"(?:[A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
).fullmatch
_is_token: Final = re.compile(r"_[A-Za-z0-9._-]{1,255}").fullmatch


class ProxyReport(NamedTuple):
    """What a trusted proxy reported.

    Attributes:
        client: the client's address, in its shortest form.
        scheme: `http` or `https`, as used by the client; empty if not reported.
        host: the host that the client requested; empty if not reported.
        chain: the entries of `X-Forwarded-For`; only the last ones if it is long.
        place: the index of the entry that the client's proxy wrote; the length if none did.
    """

    client: str
    scheme: str
    host: str
    chain: tuple[str, ...]
    place: int

    def forwarded(self, peer: str, scheme: str, host: str) -> str:
        """Return the `Forwarded` field for the next hop; the arguments are the defaults."""
        nodes = [*map(node_of, self.chain), f'"[{peer}]"' if ":" in peer else peer]
        nodes[self.place] += f';host="{self.host or host}";proto={self.scheme or scheme}'
        return ", ".join([f"for={node}" for node in nodes])


def read_proxy_report(addresses: ClientAddress, peer: str, headers: Fields) -> ProxyReport | None:
    """Read what a trusted proxy reports; None if it reports nothing.

    Args:
        addresses: the trusted addresses.
        peer: the address of the proxy.
        headers: all fields of the request.
    """
    lines = headers.getall("X-Forwarded-For", ())
    forwarded = headers.getall("Forwarded", ())
    chain = members(lines)
    forwarded_by = members(forwarded, quoted=True) if forwarded else []
    details: Mapping[str, str] = {}
    client, steps = peer, 0
    if forwarded_by:
        client, steps = addresses.walk_elements(peer, forwarded)
        details = parameters(forwarded_by[-steps]) if steps else {}
    if chain:
        other = client
        client, steps = addresses.walk(peer, lines)
        if other != client:
            details = {}
    else:
        chain = [_member(parameters(element).get("for", "")) for element in forwarded_by]
    scheme = (
        _scheme(_of_hop(members(headers.getall("X-Forwarded-Proto", ())), steps))
        or _scheme(details.get("proto", ""))
        or _other_scheme(headers)
    )
    host = _host(_of_hop(members(headers.getall("X-Forwarded-Host", ())), steps)) or _host(
        details.get("host", "")
    )
    if not chain and not scheme and not host:
        return None
    return ProxyReport(client, scheme, host, tuple(chain), len(chain) - steps)


def is_origin_field(name: str) -> bool:
    """Return whether a field, in lower case, is about the origin of a request."""
    return (
        name in ORIGIN_FIELDS
        or name in SCHEME_FIELDS
        or name == "forwarded"
        or name.startswith("x-forwarded-")
    )


def _of_hop(values: Sequence[str], steps: int) -> str:
    """Return what the client's own proxy said: in a list each proxy adds one, or there is one."""
    if not values:
        return ""
    from_end = max(steps, 1)
    return values[-from_end] if from_end <= len(values) else values[0]


def _scheme(word: str) -> str:
    return SCHEMES.get(word.lower(), "")


def _host(text: str) -> str:
    return text if _is_host(text) else ""


def _other_scheme(headers: Fields) -> str:
    said = [_scheme(value) for name in SCHEME_FIELDS for value in headers.getall(name, ())]
    return said[0] if said and all(one == said[0] for one in said) else ""


def _member(node: str) -> str:
    """Convert a node of `Forwarded` to an entry of `X-Forwarded-For`."""
    address = address_of(node)
    if address is not None:
        return address
    return node if _is_token(node) else "unknown"


@lru_cache(_CACHE)
def node_of(member: str) -> str:
    """Convert an entry of `X-Forwarded-For` to a node of `Forwarded` (RFC 7239, section 6)."""
    address = address_of(member)
    if address is None:
        return member if _is_token(member) else "unknown"
    return f'"[{address}]"' if ":" in address else address
