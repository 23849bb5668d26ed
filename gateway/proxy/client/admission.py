"""Who may connect: how many clients in all, how many of one address, and who makes room.

Nothing is noted while requests are served: whether a connection can be spared is seen from its
state, and only when there is no room left. The connections that can be spared are then put in
order once, and taken from that list as long as it lasts, so that a flood of new connections does
not cost a look at all of them each.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sized
from operator import itemgetter
from typing import Final, Protocol

MAX_CONNECTIONS: Final = "max_connections"
MAX_CONNECTIONS_PER_IP: Final = "max_connections_per_ip"

LOOK_AGAIN_S: Final = 0.1
"""For so long nobody is looked for again who could be spared, once hardly anybody was found."""

FEW: Final = 1 / 16
"""A look at all clients that finds more of them than this part was worth its time."""

LOOK_AGAIN_EACH_S: Final = 10e-6
"""The same for each client: looking at one takes about a microsecond."""

RESERVE: Final = 128
"""Open files of the gateway itself: listeners, logs, stores, the admin listener's connections."""

LEAST_RESERVE: Final = 32
"""The same where a quarter of all files would be less than is needed to run."""

MOST: Final = 1_000_000


class Client(Protocol):
    """A connection, as far as it matters here.

    Attributes:
        peer_key: the address that it is counted under.
        is_trusted: whether it is that of a proxy, which speaks for many.
        due: the loop's time at which it has taken too long.
    """

    peer_key: str
    is_trusted: bool
    due: float

    def spare(self, now: float) -> int:
        """How well it can be spared: 0 for not at all, then the less the better."""

    def make_room(self) -> None:
        """Close."""


class Clients(Sized, Iterable[Client], Protocol):
    """The connections that are open at the moment; may change at any time."""


def affordable(open_files: int, upstream_connections: int) -> int:
    """How many clients there may be with so many open files.

    Args:
        open_files: how many the process may have; less than 0 for any number.
        upstream_connections: how many there may be to upstreams; half of the files at most
            are kept for them.
    """
    if open_files < 0:
        return MOST
    left = open_files - min(RESERVE, max(LEAST_RESERVE, open_files // 4))
    return max(1, min(left - min(upstream_connections, left // 2), MOST))


class Admission:
    """Lets clients in, or says why not.

    Args:
        clients: those that are in; kept by whoever calls `admit` and `release`.
        max_connections: how many there may be.
        max_per_ip: how many of one address; None for any number. Trusted proxies are not
            counted.
    """

    def __init__(self, clients: Clients, max_connections: int, max_per_ip: int | None) -> None:
        self._clients = clients
        self._max_connections = max_connections
        self._max_per_ip = max_per_ip
        self._of_ip: defaultdict[str, int] = defaultdict(int)
        self._spare: deque[tuple[int, float, Client]] = deque()
        self._look_again_at = 0.0

    def __repr__(self) -> str:
        return f"<Admission: {len(self._clients)} of {self._max_connections}>"

    def judge(self, client: Client, now: float) -> tuple[str, Client | None]:
        """Whether a client may come in.

        Args:
            client: that has just connected.
            now: the loop's time, in seconds.

        Returns:
            The limit that is reached, if it may not; and who is to make room, if it may for that.
        """
        most = self._max_per_ip
        is_counted = most is not None and not client.is_trusted
        if most is not None and is_counted and self._of_ip.get(client.peer_key, 0) >= most:
            return MAX_CONNECTIONS_PER_IP, None
        leaver = None
        if len(self._clients) >= self._max_connections:
            leaver = self._next_to_spare(now)
            if leaver is None:
                return MAX_CONNECTIONS, None
        if is_counted:
            self._of_ip[client.peer_key] += 1
        return "", leaver

    def release(self, client: Client) -> None:
        """A client that was let in is gone."""
        if self._max_per_ip is None or client.is_trusted:
            return
        left = self._of_ip[client.peer_key] - 1
        if left:
            self._of_ip[client.peer_key] = left
        else:
            del self._of_ip[client.peer_key]

    def _next_to_spare(self, now: float) -> Client | None:
        while True:
            while self._spare:
                rank, due, client = self._spare.popleft()
                # It may have asked for something since it was put on the list.
                if client.due == due and client.spare(now) == rank:
                    return client
            if now < self._look_again_at:
                return None
            found = [
                (rank, client.due, client)
                for client in self._clients
                if (rank := client.spare(now))
            ]
            count = len(self._clients)
            if len(found) < FEW * count:
                self._look_again_at = now + max(LOOK_AGAIN_S, LOOK_AGAIN_EACH_S * count)
            if not found:
                return None
            # Of those that wait for the same, who waits longest is due first.
            self._spare.extend(sorted(found, key=itemgetter(0, 1)))
