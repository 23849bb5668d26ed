"""How long a client may take, and what counts as progress."""

from __future__ import annotations

from typing import NamedTuple


class ClientTimeouts(NamedTuple):
    """How long a client may take, in seconds.

    Attributes:
        head: to send the head of a request.
        body: between two pieces of a body, either way.
        idle: between an answer and the next request.
        linger: to read an answer while it is still sending something that nobody wants.
        rate: bytes that it is to send of a body or take of an answer in each of them, on the
            average and once the time for a piece is over; 0 for any.
    """

    head: float
    body: float
    idle: float
    linger: float
    rate: float

    def for_body(self, size: int, waited_s: float) -> float:
        """How long the next piece of a request's body may be waited for, in seconds.

        Whoever sends a byte now and then is within `body` each time; in all, every byte brings
        only as much time as it may take (as MinRate of Apache's mod_reqtimeout).

        Args:
            size: bytes of the body that are here already.
            waited_s: how long they were waited for.
        """
        if not self.rate:
            return self.body
        return max(min(self.body, self.body + size / self.rate - waited_s), 0)

    def is_progress(self, taken: int) -> bool:
        """Whether so many bytes, taken within `body`, give a reader more time."""
        return taken >= max(self.rate * self.body, 1)
