"""Sets of networks, of up to a million, in which an address is looked up in a microsecond.

Networks are kept as sorted ranges that do not overlap, in flat arrays: eight bytes for one of IPv4,
and at most 24 for one of IPv6.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import islice
from typing import Final

from gateway.routing.client_address import read_address, translated

Network = IPv4Network | IPv6Network

V4_BITS: Final = 32
V6_BITS: Final = 128
_HALF_BITS: Final = 64
_HALF: Final = (1 << _HALF_BITS) - 1
_PREFIX_BITS: Final = 8
_PREFIX: Final = (1 << _PREFIX_BITS) - 1
_GROUP_BITS: Final = 16
"""Networks are sorted in groups that have these leading bits in common."""
_BITS: Final[dict[type, int]] = {IPv4Address: V4_BITS, IPv6Address: V6_BITS}
_BATCH: Final = 512
"""How many networks are handled between two pauses."""
_CACHE: Final = 4_096
"""Addresses remembered by each set."""


def no_pause() -> None:
    """Go on at once."""


class NetworkList:
    """Networks that are to become a set, in any order: 40 bytes for each."""

    __slots__ = ("narrow", "v4", "wide")

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        # The number of each network's first address, and then its prefix.
        self.v4: list[int] = []
        # Of those with a prefix of up to 64 bits, the first half of the number.
        self.wide: list[int] = []
        self.narrow: list[int] = []
        for network in networks:
            self.add(network.network_address, network.prefixlen)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.v4) + len(self.wide) + len(self.narrow)

    def add(self, address: IPv4Address | IPv6Address, prefix: int) -> None:
        """Add a network: its first address and the length of its prefix."""
        self.add_number(int(address), prefix, _BITS[type(address)])

    def add_number(self, number: int, prefix: int, bits: int) -> None:
        """Add a network: its first address, and how many bits that has: 32 or 128."""
        if bits == V4_BITS:
            self.v4.append(number << _PREFIX_BITS | prefix)
        elif prefix <= _HALF_BITS:
            self.wide.append(number >> _HALF_BITS << _PREFIX_BITS | prefix)
        else:
            self.narrow.append(number << _PREFIX_BITS | prefix)


class NetworkSet:
    """A set of networks. Immutable, apart from a bounded cache.

    Args:
        networks: the networks.
        pause: called again and again while the set is made, which takes a second for a million
            networks, so that other threads get their turn.
    """

    __slots__ = ("_look_up", "_narrow", "_v4", "_wide")

    def __init__(self, networks: NetworkList, pause: Callable[[], None] = no_pause) -> None:
        self._v4 = _Ranges("I", V4_BITS, networks.v4, pause)
        self._wide = _Ranges("Q", _HALF_BITS, networks.wide, pause)
        self._narrow = _NarrowRanges(networks.narrow, pause)
        self._look_up: Callable[[str], bool] = lru_cache(_CACHE)(self._find)

    def __contains__(self, address: str) -> bool:
        """Return whether an address is in one of the networks; text that is none is not.

        Mapped addresses (`::ffff:0:0/96`) are those of IPv4. One behind NAT64 (`64:ff9b::/96`) is
        in the networks of either.
        """
        return self._look_up(address)

    def _find(self, text: str) -> bool:
        address = read_address(text)
        if address is None:
            return False
        number = int(address)
        if isinstance(address, IPv4Address):
            return self._v4.has(number)
        behind = translated(address)
        if behind is not None and self._v4.has(int(behind)):
            return True
        return self._wide.has(number >> _HALF_BITS) or self._narrow.has(number)


class _Ranges:
    """Ranges of numbers, sorted and joined."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(
        self, code: str, bits: int, networks: list[int], pause: Callable[[], None]
    ) -> None:
        firsts, lasts = array(code), array(code)
        for batch in _sorted(networks, bits, pause):
            for one in batch:
                first = one >> _PREFIX_BITS
                last = first | (1 << (bits - (one & _PREFIX))) - 1
                if lasts and first <= lasts[-1] + 1:
                    lasts[-1] = max(lasts[-1], last)
                else:
                    firsts.append(first)
                    lasts.append(last)
        self._firsts, self._lasts = firsts, lasts

    def has(self, number: int) -> bool:
        at = bisect_right(self._firsts, number)
        return at > 0 and number <= self._lasts[at - 1]


class _NarrowRanges:
    """Ranges within networks of 64 bits, in the order of both halves of their numbers."""

    __slots__ = ("_firsts", "_halves", "_lasts")

    def __init__(self, networks: list[int], pause: Callable[[], None]) -> None:
        halves, firsts, lasts = array("Q"), array("Q"), array("Q")
        for batch in _sorted(networks, V6_BITS, pause):
            for one in batch:
                number = one >> _PREFIX_BITS
                half, first = number >> _HALF_BITS, number & _HALF
                last = first | (1 << (V6_BITS - (one & _PREFIX))) - 1
                if halves and half == halves[-1] and first <= lasts[-1] + 1:
                    lasts[-1] = max(lasts[-1], last)
                else:
                    halves.append(half)
                    firsts.append(first)
                    lasts.append(last)
        self._halves, self._firsts, self._lasts = halves, firsts, lasts

    def has(self, number: int) -> bool:
        half, rest = number >> _HALF_BITS, number & _HALF
        begin = bisect_left(self._halves, half)
        end = bisect_right(self._halves, half, begin)
        at = bisect_right(self._firsts, rest, begin, end)
        return at > begin and rest <= self._lasts[at - 1]


def _sorted(networks: list[int], bits: int, pause: Callable[[], None]) -> Iterator[list[int]]:
    """Yield networks in order, in batches; no step of it takes long."""
    since = 0
    groups: dict[int, list[int]] = {}
    shift = bits + _PREFIX_BITS - _GROUP_BITS
    for batch in _batches(networks):
        for one in batch:
            groups.setdefault(one >> shift, []).append(one)
        pause()
    for number in sorted(groups):
        for batch in _batches(sorted(groups[number])):
            yield batch
            since += len(batch)
            if since >= _BATCH:
                since = 0
                pause()


def _batches(items: Iterable[int]) -> Iterator[list[int]]:
    iterator = iter(items)
    while batch := list(islice(iterator, _BATCH)):
        yield batch
