"""How long a client may take, and what counts as progress."""

from __future__ import annotations

from typing import NamedTuple


class ClientTimeouts(NamedTuple):
    """How long a client may take, in seconds.

    Attributes:
        head: to send the head of a request.
        body: between two pieces of a body, either way.
        idle: between an answer and the next request.
        linger: to read an answer while it is still sending data that is discarded.
        rate: bytes that it has to send of a body or read of an answer per second, on average and
            once the time for a piece is over; 0 for any.
    """

    head: float
    body: float
    idle: float
    linger: float
    rate: float

    @property
    def shortest(self) -> float:
        """Return the shortest of them."""
        return min(self.head, self.body, self.idle, self.linger)

    def for_body(self, size: int, waited_s: float) -> float:
        """Return how long to wait for the next piece of a request's body, in seconds.

        A client that sends a byte now and then is within `body` each time; in all, every byte adds
        only as much time as it may take (like MinRate of Apache's mod_reqtimeout).

        Args:
            size: bytes of the body that have arrived.
            waited_s: how long the gateway has waited for them.
        """
        if not self.rate:
            return self.body
        return max(min(self.body, self.body + size / self.rate - waited_s), 0)

    def is_progress(self, taken: int) -> bool:
        """Return whether this many bytes, read within `body`, give a reader more time."""
        return taken >= max(self.rate * self.body, 1)
