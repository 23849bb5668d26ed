"""Sockets that a process inherits: how they are announced, and which listener takes which; pure.

A service manager announces them as in sd_listen_fds(3). A gateway that is upgraded announces its
own to its successor in another variable.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from gateway.base.errors import GatewayError

FIRST_NUMBER: Final = 3
"""The first descriptor that a service manager passes."""
LISTEN_PID: Final = "LISTEN_PID"
LISTEN_FDS: Final = "LISTEN_FDS"
LISTEN_FDNAMES: Final = "LISTEN_FDNAMES"
UPGRADE: Final = "SLUICE_UPGRADE"
"""Set for the process that an upgrade starts."""
VARIABLES: Final = (LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES, "LISTEN_PIDFDID", UPGRADE)
"""They concern only the process that they were set for, and none that it starts."""
EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - a word

AnyPlace = tuple[int, tuple[object, ...]]
"""An address family, and an address of it; a `Place` of `binding`."""
Wanted = TypeVar("Wanted", bound=AnyPlace)


class Announced(NamedTuple):
    """An inherited descriptor.

    Attributes:
        number: its number.
        name: the name that the service manager gives it; may be empty.
        is_ours: whether a gateway has opened it, and not a service manager.
        path: where the file of a Unix socket is now; empty if the socket itself knows that.
    """

    number: int
    name: str
    is_ours: bool = False
    path: str = ""


class Announcement(NamedTuple):
    """What a process is told at its start.

    Attributes:
        sockets: the descriptors that it inherits.
        channel: the descriptor of the connection to its predecessor; None if it has none.
        predecessors: the ids of the processes of its predecessor.
    """

    sockets: tuple[Announced, ...] = ()
    channel: int | None = None
    predecessors: frozenset[int] = frozenset()

    def to_text(self) -> str:
        """Return the value of `UPGRADE` that announces this."""
        return json.dumps([self.channel, sorted(self.predecessors), self.sockets])


def announcement(variables: Mapping[str, str], pid: int) -> Announcement:
    """Return what the environment announces.

    Args:
        variables: the environment.
        pid: the id of this process: the service manager may have meant another.

    Raises:
        GatewayError: a variable has not the form that it must have.
    """
    if UPGRADE in variables:
        channel, predecessors, sockets = json.loads(variables[UPGRADE])
        announced = tuple(Announced(*one) for one in sockets)
        return Announcement(announced, channel, frozenset(predecessors))
    if variables.get(LISTEN_PID) != str(pid):
        return Announcement()
    count = variables.get(LISTEN_FDS, "")
    if not (count.isascii() and count.isdigit()):
        raise GatewayError(f"{LISTEN_FDS} is {count!r}, which is not a number of descriptors")
    names = variables.get(LISTEN_FDNAMES, "").split(":")
    names += [""] * (int(count) - len(names))
    return Announcement(tuple(Announced(FIRST_NUMBER + at, names[at]) for at in range(int(count))))


class InheritedPlace(NamedTuple):
    """Where an inherited socket listens.

    Attributes:
        family: its address family.
        address: as `getsockname` returns it.
        has_both: whether it listens on all addresses of IPv6, and on those of IPv4 as well.
    """

    family: int
    address: tuple[object, ...]
    has_both: bool = False


def taken(inherited: Sequence[InheritedPlace], wanted: Collection[AnyPlace]) -> list[int]:
    """Return which inherited sockets a listener takes, by their position: all at its addresses."""
    return [at for at, one in enumerate(inherited) if one[:2] in wanted]


def missing(inherited: Sequence[InheritedPlace], wanted: Sequence[Wanted]) -> list[Wanted]:
    """Return the addresses of a listener that none of the sockets that it takes listens on."""
    found = {one[:2] for one in inherited}
    ports = {one.address[1] for one in inherited if one.has_both}
    return [
        one
        for one in wanted
        if one not in found and not (one[1][0] == EVERYWHERE[0] and one[1][1] in ports)
    ]


def shares(sockets: int, workers: int) -> tuple[int, list[list[int]]]:
    """Return how workers divide inherited sockets that share an address (SO_REUSEPORT).

    The kernel gives each socket equally many connections, so each worker gets equally many sockets.
    None may be closed: the connections in its queue would be lost.

    Returns:
        How many more sockets are needed, and the positions of those that each worker takes.
    """
    more = -sockets % workers
    return more, [list(range(first, sockets + more, workers)) for first in range(workers)]
