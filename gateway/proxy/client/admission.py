"""Connection limits: how many clients in all and per address, and which are closed to make room.

Nothing is recorded while requests are served: whether a connection can be closed is seen from its
state, and only when there is no room left. The connections that can be closed are then sorted
once, and taken from that list as long as it lasts, so that a flood of new connections does not
scan all of them each time.

With several workers the limits hold for all of them together: each worker counts a client on the
board first, then adds up what is there. So the limits are never exceeded; of clients that connect
to several workers in the same microseconds, some may be refused although there was room for one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sized
from operator import itemgetter
from typing import Final, NamedTuple, Protocol

from gateway.board.board import CONNECTIONS, Seat

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

NAME: Final = "clients "
"""What precedes an address in the names of the board."""


class ClientBounds(NamedTuple):
    """How many clients there may be.

    Attributes:
        here: in this process, which needs a file for each.
        all: in all workers together; None for any number.
        per_ip: from one address, in all workers together; None for any number.
    """

    here: int
    all: int | None
    per_ip: int | None


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
        clients: the admitted ones; maintained by the caller of `judge` and `release`.
        bounds: how many there may be. Trusted proxies are not counted per address.
        seat: the place of this worker among several; None if it is the only one.
    """

    def __init__(self, clients: Clients, bounds: ClientBounds, seat: Seat | None = None) -> None:
        self._clients = clients
        self._seat = seat
        self._bounds = bounds
        self._of_ip: defaultdict[str, int] = defaultdict(int)
        self._spare: deque[tuple[int, float, Client]] = deque()
        self._look_again_at = 0.0

    def __repr__(self) -> str:
        return f"<Admission: {len(self._clients)} of {self._bounds.here}>"

    def reconfigure(self, bounds: ClientBounds) -> None:
        """Apply other limits from the next client on; those that are there stay."""
        before, self._of_ip = self._of_ip, defaultdict(int)
        self._bounds = bounds
        if bounds.per_ip is not None:
            for client in self._clients:
                if not client.is_trusted:
                    self._of_ip[client.peer_key] += 1
        for key in {*before, *self._of_ip}:
            self._show(key, self._of_ip.get(key, 0))

    def judge(self, client: Client, now: float) -> tuple[str, Client | None]:
        """Admit or refuse a client.

        Args:
            client: the client that has just connected.
            now: the loop's time, in seconds.

        Returns:
            The limit that refuses it, if any; and the client to close to make room, if any.
        """
        is_counted = self._bounds.per_ip is not None and not client.is_trusted
        if is_counted and not self._count(client.peer_key, self._bounds.per_ip or 0):
            return MAX_CONNECTIONS_PER_IP, None
        leaver = None
        if self._is_full():
            leaver = self._next_to_spare(now)
            if leaver is None:
                if is_counted:
                    self._discount(client.peer_key)
                self._refuse()
                return MAX_CONNECTIONS, None
        return "", leaver

    def release(self, client: Client) -> None:
        """Note that an admitted client is gone, after it was taken from the others."""
        if self._seat is not None:
            self._seat.set(CONNECTIONS, len(self._clients))
        if self._bounds.per_ip is not None and not client.is_trusted:
            self._discount(client.peer_key)

    def make_room(self, now: float) -> Client | None:
        """Return a client to close because another worker has none that can be; None for none."""
        seat, most = self._seat, self._bounds.all
        if seat is None or most is None or seat.total(CONNECTIONS) < most:
            return None
        return self._next_to_spare(now)

    def _count(self, key: str, most: int) -> bool:
        """Count one more client of an address, unless there are too many."""
        here = self._of_ip.get(key, 0)
        if here >= most:
            return False
        seat = self._seat
        if seat is not None:
            spot = seat.spot(NAME + key)
            seat.write(spot, here + 1)
            if here + 1 + sum(seat.others(spot)) > most:
                seat.write(spot, here)
                return False
        self._of_ip[key] = here + 1
        return True

    def _discount(self, key: str) -> None:
        left = self._of_ip[key] - 1
        if left:
            self._of_ip[key] = left
        else:
            del self._of_ip[key]
        self._show(key, left)

    def _show(self, key: str, number: int) -> None:
        if self._seat is not None:
            self._seat.write(self._seat.spot(NAME + key), number)

    def _is_full(self) -> bool:
        """Count one more client, and return whether that is one too many."""
        count, most = len(self._clients) + 1, self._bounds.all
        seat = self._seat
        if seat is None or most is None:
            return count > self._bounds.here
        seat.set(CONNECTIONS, count)
        return count > self._bounds.here or seat.total(CONNECTIONS) > most

    def _refuse(self) -> None:
        """Count one less; if other workers have clients, one of them may be able to make room."""
        seat = self._seat
        if seat is None or self._bounds.all is None:
            return
        seat.set(CONNECTIONS, len(self._clients))
        if len(self._clients) < self._bounds.here:
            seat.ring(seat.largest(CONNECTIONS))

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
