"""Which tier a request belongs to: which of a policy's limits apply to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from gateway.base.errors import BadRequestError
from gateway.routing.request_view import RequestView
from gateway.routing.value_set import MISSING, ValueTable
from gateway.routing.values import Ambiguity, Read

FindTier = Callable[[RequestView], str]
"""Returns the tier of a request; empty if it has none.

Raises:
    BadRequestError: it is ambiguous which tier it has.
"""

_HEADER: Final = "header:"


class TierTable:
    """Clients and their tiers.

    Args:
        names: the tiers.
        content: the position of each client's tier among them; replaced when it changes.
    """

    __slots__ = ("_names", "content")

    def __init__(self, names: Sequence[str], content: ValueTable) -> None:
        self._names = tuple(names)
        self.content = content

    def find(self, client: str) -> str:
        """Return the tier of a client; empty if it has none."""
        number = self.content.find(client)
        return "" if number == MISSING else self._names[number]


def tier_by_name(word: str, names: Collection[str], read: Read) -> FindTier:
    """Return a function for requests that name their tier.

    Args:
        word: the key word of the value that names it. Header fields are only believed of trusted
            proxies.
        names: the tiers.
        read: reads that value.
    """
    known = {name: name for name in names}
    find = _finder(word, lambda value: known.get(value, ""), read)
    if not word.startswith(_HEADER):
        return find
    return lambda request: find(request) if request.is_from_proxy else ""


def tier_by_client(
    word: str, clients: Mapping[str, str], table: TierTable | None, read: Read
) -> FindTier:
    """Return a function for requests of clients whose tiers are known.

    Args:
        word: the key word of the value that names the client.
        clients: the tiers of some clients.
        table: those of all others; None if they have none.
        read: reads that value.
    """
    if not clients and table is not None:
        return _finder(word, table.find, read)

    def tier_of(client: str) -> str:
        tier = clients.get(client)
        if tier is not None:
            return tier
        return "" if table is None else table.find(client)

    return _finder(word, tier_of, read)


def _finder(word: str, tier_of: Callable[[str], str], read: Read) -> FindTier:
    def find(request: RequestView) -> str:
        found = read(request)
        if isinstance(found, str):
            return tier_of(found)
        if not found:
            return ""
        if isinstance(found, Ambiguity):
            title = f"The request has several values of what its limit depends on: {word}"
            raise BadRequestError(title, kind="key")
        # Several cookies: the tier of all of them, if it is one.
        tiers = {tier_of(value) for value in found}
        return tiers.pop() if len(tiers) == 1 else ""

    return find
