"""The addresses of one name, and which of them a new connection tries first: decisions only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Final

MAX_ADDRESSES: Final = 256
"""More addresses of one name are not used; a DNS answer over UDP has room for some thirty."""
SKIP_US: Final = 10_000_000
"""How long an address that could not be connected to comes last."""


class Addresses:
    """Addresses that connections are spread over, one after the other."""

    __slots__ = ("_failing", "_known", "_next")

    def __init__(self) -> None:
        self._known: tuple[str, ...] = ()
        self._failing: dict[str, int] = {}
        self._next = 0

    def __repr__(self) -> str:
        return f"<Addresses {', '.join(self._known) or 'none'}>"

    @property
    def known(self) -> tuple[str, ...]:
        """Return all addresses."""
        return self._known

    def replace(self, found: Iterable[str]) -> frozenset[str]:
        """Use these addresses from now on; return those that are gone."""
        found = tuple(dict.fromkeys(found))[:MAX_ADDRESSES]
        gone = frozenset(self._known) - frozenset(found)
        # Resolvers shuffle: the rotation continues in the known order.
        kept = [one for one in self._known if one in found]
        self._known = (*kept, *(one for one in found if one not in kept))
        for address in gone:
            self._failing.pop(address, None)
        return gone

    def order(self, now_us: int) -> list[str]:
        """Return the order in which the next connection tries the addresses.

        It begins with the address whose turn it is and alternates between IPv4 and IPv6 (RFC 8305,
        section 4); those that failed lately come last.
        """
        known = self._known
        if not known:
            return []
        start = self._next % len(known)
        self._next = start + 1
        turned = known[start:] + known[:start]
        failing = {one for one, until in self._failing.items() if until > now_us}
        fine = [one for one in turned if one not in failing]
        return _interleaved(fine) + _interleaved([one for one in turned if one in failing])

    def failed(self, address: str, now_us: int) -> None:
        """Note that connecting to an address failed, or took too long."""
        if address in self._known:
            self._failing[address] = now_us + SKIP_US

    def worked(self, address: str) -> None:
        """Note that connecting to an address worked."""
        self._failing.pop(address, None)


def _interleaved(addresses: Sequence[str]) -> list[str]:
    """Return addresses alternating between the two families, starting with the first one's."""
    if not addresses:
        return []
    is_six = ":" in addresses[0]
    same = [one for one in addresses if (":" in one) == is_six]
    other = [one for one in addresses if (":" in one) != is_six]
    return [one for one in chain(*zip_longest(same, other)) if one is not None]
