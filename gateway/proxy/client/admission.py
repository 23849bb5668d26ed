"""Connection limits: how many clients in all and per address, and which are closed to make room.

Nothing is recorded while requests are served: whether a connection can be closed is seen from its
state, and only when there is no room left. The connections that can be closed are then sorted
once, and taken from that list as long as it lasts, so that a flood of new connections does not
scan all of them each time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sized
from operator import itemgetter
from typing import Final, Protocol

MAX_CONNECTIONS: Final = "max_connections"
MAX_CONNECTIONS_PER_IP: Final = "max_connections_per_ip"

LOOK_AGAIN_S: Final = 0.1
"""How long to wait before another scan if the last one found hardly any closable connection."""

FEW: Final = 1 / 16
"""A scan of all clients is worth its time if it finds more than this part of them."""

LOOK_AGAIN_EACH_S: Final = 10e-6
"""The same for each client: examining one takes about a microsecond."""

RESERVE: Final = 128
"""Open files of the gateway itself: listeners, logs, stores, the admin listener's connections."""

LEAST_RESERVE: Final = 32
"""The same where a quarter of all files would be less than the gateway needs to run."""

MOST: Final = 1_000_000


class Client(Protocol):
    """The parts of a connection that matter here.

    Attributes:
        peer_key: the key that the address is counted under.
        is_trusted: whether the peer is a trusted proxy, which stands for many clients.
        due: the loop's time at which the client is late.
    """

    peer_key: str
    is_trusted: bool
    due: float

    def spare(self, now: float) -> int:
        """Return how readily it can be closed: 0 for not at all, else the lowest goes first."""

    def make_room(self) -> None:
        """Close the connection."""


class Clients(Sized, Iterable[Client], Protocol):
    """The connections that are open now; may change at any time."""


def affordable(open_files: int, upstream_connections: int) -> int:
    """Return how many clients there may be with this many open files.

    Args:
        open_files: how many the process may have; less than 0 for any number.
        upstream_connections: the most connections to upstreams; at most half of the files are
            reserved for them.
    """
    if open_files < 0:
        return MOST
    left = open_files - min(RESERVE, max(LEAST_RESERVE, open_files // 4))
    return max(1, min(left - min(upstream_connections, left // 2), MOST))


class Admission:
    """Admits clients, or returns the limit that refuses them.

    Args:
        clients: the admitted ones; maintained by the caller of `admit` and `release`.
        max_connections: how many there may be.
        max_per_ip: how many from one address; None for any number. Trusted proxies are not
            counted.
    """

    def __init__(self, clients: Clients, max_connections: int, max_per_ip: int | None) -> None:
        self._clients = clients
        self.reconfigure(max_connections, max_per_ip)
        self._spare: deque[tuple[int, float, Client]] = deque()
        self._look_again_at = 0.0

    def __repr__(self) -> str:
        return f"<Admission: {len(self._clients)} of {self._max_connections}>"

    def reconfigure(self, max_connections: int, max_per_ip: int | None) -> None:
        """Apply other limits from the next client on; those that are there stay."""
        self._max_connections = max_connections
        self._max_per_ip = max_per_ip
        self._of_ip: defaultdict[str, int] = defaultdict(int)
        if max_per_ip is not None:
            for client in self._clients:
                if not client.is_trusted:
                    self._of_ip[client.peer_key] += 1

    def judge(self, client: Client, now: float) -> tuple[str, Client | None]:
        """Admit or refuse a client.

        Args:
            client: the client that has just connected.
            now: the loop's time, in seconds.

        Returns:
            The limit that refuses it, if any; and the client to close to make room, if any.
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
        """Note that an admitted client is gone."""
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
                # It may have sent a request since it was put on the list.
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
            # Of connections in the same state, the one that has waited longest is due first.
            self._spare.extend(sorted(found, key=itemgetter(0, 1)))
