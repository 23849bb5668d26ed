"""What a route or an exception requires of the client: its address, cookies and certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from gateway.routing.wildcard import covers

Member = IPv4Network | IPv6Network | str
"""A network, or the name of a list."""

Values = tuple[tuple[str, str], ...]
"""Pairs of a name and the value that is required, with `*` for any text, as in `wildcard`."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Conditions on who sends a request; all must hold.

    Attributes:
        clients: networks and names of lists, one of which must have the client; empty for any.
        cookies: cookies and their values.
        certificate: details of the client's certificate, such as `subject`, and their values.
    """

    clients: tuple[Member, ...] = ()
    cookies: Values = ()
    certificate: Values = ()

    @property
    def count(self) -> int:
        """How many conditions there are."""
        return len(self.cookies) + len(self.certificate) + bool(self.clients)

    def covers(self, special: Sender) -> bool:
        """Return whether all that meet `special` certainly meet this, too."""
        return (
            covers_values(self.cookies, special.cookies)
            and covers_values(self.certificate, special.certificate)
            and (not self.clients or covers_members(self.clients, special.clients))
        )


ANYONE: Final = Sender()


def covers_values(general: Sequence[tuple[str, str]], special: Sequence[tuple[str, str]]) -> bool:
    """Return whether a request with all values of `special` certainly has those of `general`."""
    return all(
        any(name == its and covers(value, meant) for its, meant in special)
        for name, value in general
    )


def covers_members(general: Sequence[Member], special: Sequence[Member]) -> bool:
    """Return whether one of `general` certainly has each client that one of `special` has.

    `special` must not be empty, which would mean any client.
    """
    return bool(special) and all(any(_has(by, one) for by in general) for one in special)


def _has(general: Member, special: Member) -> bool:
    if isinstance(general, IPv4Network) and isinstance(special, IPv4Network):
        return special.subnet_of(general)
    if isinstance(general, IPv6Network) and isinstance(special, IPv6Network):
        return special.subnet_of(general)
    return general == special
