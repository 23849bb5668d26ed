"""What trusted proxies tell of a request: its client, scheme and host, in one story.

Two families of fields tell it, `X-Forwarded-*` and `Forwarded` (RFC 7239), and proxies write
either or both. Frameworks behind a gateway read either, so both have to say the same there
(RFC 7239, section 7.4). What is read here is what the upstream is told in both.

`X-Forwarded-For` is what nearly every proxy writes, and many pass on a `Forwarded` of their
clients as it came. So `Forwarded` counts where there is no `X-Forwarded-For`, or where both name
the same client; and a detail that `X-Forwarded-*` tells is not taken from it.
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
"""Words for a scheme, in lower case; of WebSockets as some proxies have them."""

SCHEME_FIELDS: Final = (
    *("x-forwarded-scheme", "x-forwarded-protocol", "x-forwarded-ssl"),
    *("x-url-scheme", "front-end-https"),
)
"""What else proxies tell the scheme by, and frameworks read, in place of `X-Forwarded-Proto`."""

ORIGIN_FIELDS: Final = frozenset(
    {
        # And whatever else begins with `X-Forwarded-`.
        *("x-forwarded", "forwarded-for", "x-real-ip", "x-client-ip", "x-cluster-client-ip"),
        *("true-client-ip", "cf-connecting-ip", "cf-pseudo-ipv4", "cf-visitor"),
        # What applications look for as well, in frameworks and in code that is copied.
        *("client-ip", "proxy-client-ip", "wl-proxy-client-ip", "fastly-client-ip"),
        *("cloudfront-forwarded-proto", "x-host", "x-original-host"),
        *("x-original-url", "x-rewrite-url"),
        # Whose certificate it is that a proxy has verified: RFC 9440, section 4, and Envoy's own.
        *("client-cert", "client-cert-chain"),
    }
)
"""Fields that say where a request came from, and are passed on if a trusted proxy says it."""

TOLD_FIELDS: Final = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded")
"""The two families: written anew for the upstream, by whomever they were told."""

_CACHE: Final = 4096
_is_host: Final = re.compile(
    r"(?:[A-Za-z0-9._~-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
).fullmatch
_is_token: Final = re.compile(r"_[A-Za-z0-9._-]{1,255}").fullmatch


class Story(NamedTuple):
    """What was told.

    Attributes:
        client: the client's address, in its shortest form.
        scheme: `http` or `https`, as the client asked; empty if nobody told.
        host: that the client asked for; empty if nobody told.
        chain: addresses, or what stands for them, as `X-Forwarded-For` has them; the last of a
            long one.
        place: which of the chain the client's proxy wrote; its length if none did.
    """

    client: str
    scheme: str
    host: str
    chain: tuple[str, ...]
    place: int

    def forwarded(self, peer: str, scheme: str, host: str) -> str:
        """The `Forwarded` for the next hop; arguments as for those who were told nothing."""
        nodes = [*map(node_of, self.chain), f'"[{peer}]"' if ":" in peer else peer]
        nodes[self.place] += f';host="{self.host or host}";proto={self.scheme or scheme}'
        return ", ".join([f"for={node}" for node in nodes])


def read_story(addresses: ClientAddress, peer: str, headers: Fields) -> Story | None:
    """Read what a trusted proxy tells; None if that is nothing.

    Args:
        addresses: who is trusted.
        peer: the address of the proxy.
        headers: all fields of the request.
    """
    lines = headers.getall("X-Forwarded-For", ())
    forwarded = headers.getall("Forwarded", ())
    chain = members(lines)
    told = members(forwarded, quoted=True) if forwarded else []
    details: Mapping[str, str] = {}
    client, steps = peer, 0
    if told:
        client, steps = addresses.walk_elements(peer, forwarded)
        details = parameters(told[-steps]) if steps else {}
    if chain:
        other = client
        client, steps = addresses.walk(peer, lines)
        if other != client:
            details = {}
    else:
        chain = [_member(parameters(element).get("for", "")) for element in told]
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
    return Story(client, scheme, host, tuple(chain), len(chain) - steps)


def tells_origin(name: str) -> bool:
    """Whether a field, in lower case, says where a request came from."""
    return (
        name in ORIGIN_FIELDS
        or name in SCHEME_FIELDS
        or name == "forwarded"
        or name.startswith("x-forwarded-")
    )


def _of_hop(values: Sequence[str], steps: int) -> str:
    """What the client's own proxy said: each adds its word to a list, or there is one for all."""
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
    """A node of `Forwarded` as `X-Forwarded-For` has it."""
    address = address_of(node)
    if address is not None:
        return address
    return node if _is_token(node) else "unknown"


@lru_cache(_CACHE)
def node_of(member: str) -> str:
    """A member of `X-Forwarded-For` as a node of `Forwarded` (RFC 7239, section 6)."""
    address = address_of(member)
    if address is None:
        return member if _is_token(member) else "unknown"
    return f'"[{address}]"' if ":" in address else address
