"""The client's address behind trusted proxies, and the text it is counted by.

The address of the connection cannot be forged, but headers can. So the chain of addresses is
followed from its end, which the nearest proxy wrote, only as far as proxies are trusted: the first
address that is not trusted is the client's.

Sources: RFC 7239 (`Forwarded`), RFC 4291 section 2.5.5.2 (IPv4-mapped addresses), RFC 6052
section 2.1 (`64:ff9b::/96`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import islice
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_Hop = tuple[str, bool] | None
"""An entry of a list: an address and whether it is trusted; None if it is not an address."""

UNKNOWN: Final = "unknown"
"""The bucket of peers without an address, such as those of a Unix socket."""

_CACHE: Final = 4096
"""Addresses remembered by each cache."""

_MAX_HOPS: Final = 32
"""Entries of a list that are considered, from its end: trusted proxies, in practice one to three.
"""

_MAX_MEMBER: Final = 512
"""Characters in one entry of a list; longer ones are not addresses."""

_IPV6_BITS: Final = 128

_NAT64: Final = IPv6Network("64:ff9b::/96")

_node: Final = re.compile(
    r"\[([0-9A-Fa-f:.]+)\](?::\w+)?|([0-9.]+)(?::\w+)?|([0-9A-Fa-f:.]+)"
).fullmatch
_pair: Final = re.compile(
    r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*=\s*"
    r"(?:\"([^\"\\]*+(?:\\.[^\"\\]*+)*)\"|([^\s\";]*+))\s*(?:;|\Z)"
).match
_escaped: Final = re.compile(r"\\(.)")


class ClientAddress:
    """Finds the client of a request. Immutable, apart from bounded caches.

    Args:
        trusted: the networks of trusted proxies.
        ipv6_prefix: bits of an IPv6 address that are counted together, 1 to 128: a subscriber has a
            whole network and could use a new address for each request.

    Raises:
        ValueError: `ipv6_prefix` is out of range.
    """

    __slots__ = ("_bucket", "_element", "_hop", "_ipv6_prefix", "_peer", "_trusted")

    def __init__(self, trusted: Sequence[Network], ipv6_prefix: int = 64) -> None:
        if not 1 <= ipv6_prefix <= _IPV6_BITS:
            raise ValueError("an IPv6 prefix has 1 to 128 bits")
        self._trusted = tuple(trusted)
        self._ipv6_prefix = ipv6_prefix
        self._peer: Callable[[str], tuple[str, bool]] = lru_cache(_CACHE)(self._look_at)
        self._hop: Callable[[str], _Hop] = lru_cache(_CACHE)(self._look_at_hop)
        self._element: Callable[[str], _Hop] = lru_cache(_CACHE)(self._look_at_element)
        self._bucket: Callable[[str], str] = lru_cache(_CACHE)(self._find_bucket)

    def is_trusted(self, peer: str) -> bool:
        """Return whether `peer`, an address, is a trusted proxy."""
        return self._peer(peer)[1]

    def resolve(
        self, peer: str, forwarded_for: Sequence[str], forwarded: Sequence[str] = ()
    ) -> str:
        """Return the address of the client, in its shortest form.

        An entry that is not an address (`unknown`, `_hidden`, garbage) ends the search: the client
        is then the last valid address, that of the proxy that wrote the entry.

        Nearly every proxy writes `X-Forwarded-For`; if it is present, `Forwarded` is ignored. A
        trusted proxy that writes only `Forwarded` must remove the other field from the requests it
        forwards, or clients can choose their address.

        Args:
            peer: the address of the connection; text that is not an address is returned unchanged.
            forwarded_for: the values of `X-Forwarded-For`, in the order of the lines.
            forwarded: the values of `Forwarded`, likewise.
        """
        address, is_trusted = self._peer(peer)
        if not is_trusted:
            return address
        if any(line.strip(" \t,") for line in forwarded_for):
            return self.walk(address, forwarded_for)[0]
        return self.walk_elements(address, forwarded)[0]

    def walk(self, peer: str, forwarded_for: Sequence[str]) -> tuple[str, int]:
        """Return the client behind a trusted proxy according to `X-Forwarded-For`.

        Returns:
            Its address, and how many entries were considered, from the end.
        """
        return _walk(self._peer(peer)[0], _last_members(forwarded_for), self._hop)

    def walk_elements(self, peer: str, forwarded: Sequence[str]) -> tuple[str, int]:
        """The same according to `Forwarded`."""
        return _walk(self._peer(peer)[0], _last_members(forwarded, quoted=True), self._element)

    def bucket(self, address: str) -> str:
        """Return the text that an address is counted by.

        IPv4 as it is, also when embedded in IPv6 (`::ffff:0:0/96`, `64:ff9b::/96`); other IPv6 as
        its network; `unknown` for text that is not an address.
        """
        return self._bucket(address)

    def _look_at(self, text: str) -> tuple[str, bool]:
        address = read_address(text)
        if address is None:
            return text, False
        return str(address), any(address in network for network in self._trusted)

    def _look_at_hop(self, member: str) -> _Hop:
        found = address_of(member)
        return None if found is None else self._look_at(found)

    def _look_at_element(self, element: str) -> _Hop:
        return self._look_at_hop(parameters(element).get("for", UNKNOWN))

    def _find_bucket(self, text: str) -> str:
        address = address_in(text)
        if address is None:
            return UNKNOWN
        if isinstance(address, IPv4Address):
            return str(address)
        number = IPv6Address(address.packed)  # without a zone
        if self._ipv6_prefix == _IPV6_BITS:
            return str(number)
        return str(IPv6Network((number, self._ipv6_prefix), strict=False))


def read_address(text: str | None) -> Address | None:
    """Read an address; an IPv4-mapped one becomes the IPv4 address. None for other text."""
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def address_in(text: str) -> Address | None:
    """Read an address; IPv4 that is embedded in IPv6 becomes IPv4. None for other text."""
    address = read_address(text)
    if address is None:
        return None
    return translated(address) or address


def translated(address: Address) -> IPv4Address | None:
    """Return the IPv4 address behind NAT64; None if the address is another one."""
    if isinstance(address, IPv6Address) and address in _NAT64:
        return IPv4Address(address.packed[-4:])
    return None


def address_of(node: str) -> str | None:
    """Return the address in `203.0.113.7:80` or `[2001:db8::1]`, in its shortest form, or None."""
    match = _node(node) if len(node) <= _MAX_MEMBER else None
    found = read_address(match[1] or match[2] or match[3]) if match else None
    return None if found is None else str(found)


def _walk(address: str, found: Iterator[str], look_at: Callable[[str], _Hop]) -> tuple[str, int]:
    """Go from `address`, a trusted proxy, to the first address that is not trusted.

    Returns:
        That address, and how many entries were considered.
    """
    steps = 0
    for member in islice(found, _MAX_HOPS):
        if not member:
            continue
        steps += 1
        hop = look_at(member)
        if hop is None:
            break
        address, is_trusted = hop
        if not is_trusted:
            break
    return address, steps


def members(lines: Sequence[str], *, quoted: bool = False) -> list[str]:
    """Return the last entries of comma-separated lists, in order, without empty ones.

    Only as many as are considered, so that long lists cost no more.

    Args:
        lines: in the order received.
        quoted: whether quoted strings may contain commas, as in `Forwarded`.
    """
    if len(lines) == 1 and "," not in lines[0] and len(lines[0]) <= _MAX_MEMBER:
        # The usual case.
        only = lines[0].strip(" \t")
        return [only] if only else []
    found = islice(_last_members(lines, quoted=quoted), _MAX_HOPS)
    return [member for member in found if member][::-1]


def _last_members(lines: Sequence[str], *, quoted: bool = False) -> Iterator[str]:
    """Yield the entries of comma-separated lists from the last to the first, stripped.

    Reading from the end keeps anything a client wrote, such as an unterminated quote, from
    affecting what a proxy appended.
    """
    for line in reversed(lines):
        end = len(line)
        while end >= 0:
            comma = line.rfind(",", 0, end)
            while quoted and comma >= 0 and _is_in_quotes(line[comma + 1 : end]):
                if end - comma > _MAX_MEMBER:
                    break
                comma = line.rfind(",", 0, comma)
            # One character over the limit is enough: it is not an address.
            yield line[comma + 1 : min(end, comma + 2 + _MAX_MEMBER)].strip(" \t")
            end = comma


def _is_in_quotes(text: str) -> bool:
    """Return whether a quoted string that began before `text` ends in it."""
    return text.replace("\\\\", "").replace('\\"', "").count('"') % 2 == 1


@lru_cache(_CACHE)
def parameters(element: str) -> Mapping[str, str]:
    """Return the parameters of a `Forwarded` element by lower-case name, without quotes.

    Empty if it is not a list of parameters; repeated parameters are omitted.
    """
    found: dict[str, str] = {}
    if len(element) > _MAX_MEMBER:
        return found
    doubled: set[str] = set()
    position = 0
    while position < len(element):
        pair = _pair(element, position)
        if pair is None:
            return {}
        name = pair[1].lower()
        if name in found:
            doubled.add(name)
        found[name] = pair[3] if pair[2] is None else _escaped.sub(r"\1", pair[2])
        position = pair.end()
    return {name: value for name, value in found.items() if name not in doubled}
