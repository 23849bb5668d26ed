"""What one client has to do next, by when, and what happens if it does not.

Each connection has a `ClientDeadline`; `gateway.base.deadlines` looks at all of them a few times
within the shortest limit. The loop's time is passed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from gateway.net.unsent import unsent_bytes

if TYPE_CHECKING:
    from gateway.proxy.client.handler import ServedRequest
    from gateway.proxy.client.timeouts import ClientTimeouts

LAST_CALL_S: Final = 0.25
"""How long an idle connection is kept when the gateway stops: a request may be on its way."""

FAIR_S: Final = 1.0
"""For so long a client may keep its place with a head that is not complete, when there is no
room left for others."""

_HEAD: Final = 0
_REQUEST: Final = 1
_LAST_REQUEST: Final = 2
_READING: Final = 3
_LINGERING: Final = 4
_OTHER: Final = 5


class TimedClient(Protocol):
    """A connection, as far as its deadline needs it."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport; None once the connection is closed."""

    @property
    def current(self) -> ServedRequest | None:
        """The request that is being served."""

    def close(self) -> None:
        """Close in order."""

    def break_off(self) -> None:
        """Reset the connection."""


class LateClients(Protocol):
    """Counts clients that are late."""

    def head_is_late(self) -> None:
        """Count a client that took too long to send the head of a request."""

    def reader_is_late(self, served: ServedRequest | None) -> None:
        """Count a client that took too long to read a response, or what is left of the last one."""


def _nothing() -> None:
    """Do nothing: nobody has said yet what happens."""


class ClientDeadline:
    """The deadline of one client.

    Args:
        timeouts: how long the client may take.
        counts: told about clients that are late.

    Attributes:
        due: the loop's time at which the client is late; `inf` while it has nothing to do.
    """

    __slots__ = ("_counts", "_on_late", "_timeouts", "_unread", "_what", "due")

    def __init__(self, timeouts: ClientTimeouts, counts: LateClients) -> None:
        self._timeouts = timeouts
        self._counts = counts
        self._what = _HEAD
        self._unread = 0
        self._on_late: Callable[[], None] = _nothing
        self.due = inf

    def __repr__(self) -> str:
        return f"<ClientDeadline at {self.due}>"

    # What the client has to do.

    def send_head(self, now: float) -> None:
        """Give the client time to send the head of a request that has begun."""
        self._what = _HEAD
        self.due = now + self._timeouts.head

    def send_request(self, now: float) -> None:
        """Give the client time to begin another request."""
        self._what = _REQUEST
        self.due = now + self._timeouts.idle

    def send_last_request(self, now: float) -> None:
        """Give a request time to arrive that may be on its way already."""
        self._what = _LAST_REQUEST
        self.due = now + LAST_CALL_S

    def send_body(
        self, now: float, on_late: Callable[[], None], size: int, waited_s: float
    ) -> None:
        """Give the client time to send the next piece of a body.

        Args:
            now: the loop's time.
            on_late: called if the piece does not come.
            size: bytes of the body that are here already.
            waited_s: how long they were waited for.
        """
        self._what = _OTHER
        self._on_late = on_late
        self.due = now + self._timeouts.for_body(size, waited_s)

    def read(self, now: float, transport: asyncio.Transport | None) -> None:
        """Give the client time to read what was sent; progress gives it more."""
        self._what = _READING
        self._unread = unsent_bytes(transport)
        self.due = now + self._timeouts.body

    def read_and_leave(self, now: float, transport: asyncio.Transport | None) -> None:
        """Let the client send what nobody reads for as long as it reads its last response."""
        self._what = _LINGERING
        self._unread = unsent_bytes(transport)
        self.due = now + self._timeouts.linger

    def other(self, due: float, on_late: Callable[[], None]) -> None:
        """Take a deadline that something else moves; `on_late` must set `due` anew."""
        self._what = _OTHER
        self._on_late = on_late
        self.due = due

    @property
    def is_for_head(self) -> bool:
        """Whether the client has to send the rest of a head."""
        return self._what == _HEAD and self.due != inf

    @property
    def is_for_reading(self) -> bool:
        """Whether the client has to read what was sent."""
        return self._what == _READING and self.due != inf

    def is_slow_head(self, now: float) -> bool:
        """Whether the client has had a fair time to send a head, and has not."""
        return self._what == _HEAD and self.due - now <= self._timeouts.head - FAIR_S

    # What happens if it does not.

    def expire(self, client: TimedClient, now: float) -> None:
        """Act on a client that has taken too long."""
        self.due = inf
        what = self._what
        if what == _HEAD:
            self._counts.head_is_late()
            give_up(client)
        elif what == _OTHER:
            self._on_late()
        elif what == _READING:
            self._reader_is_late(client, now)
        elif what == _LINGERING:
            left = unsent_bytes(client.transport)
            if left and self._timeouts.is_progress(self._unread - left):
                self.read_and_leave(now, client.transport)
            else:
                client.break_off()
        elif not is_sending(client):
            client.close()
        elif what == _LAST_REQUEST:
            self.send_last_request(now)
        else:
            # It is still reading its last response.
            self.read(now, client.transport)

    def _reader_is_late(self, client: TimedClient, now: float) -> None:
        if client.current is None and not is_sending(client):
            client.close()
        elif self._timeouts.is_progress(self._unread - unsent_bytes(client.transport)):
            self.read(now, client.transport)
        else:
            self._counts.reader_is_late(client.current)
            client.break_off()


def is_sending(client: TimedClient) -> bool:
    """Return whether there are bytes for the client that the kernel has not taken yet."""
    transport = client.transport
    return transport is not None and transport.get_write_buffer_size() > 0


def give_up(client: TimedClient) -> None:
    """Close now; what was sent and is still not read will not be read."""
    if is_sending(client):
        client.break_off()
    else:
        client.close()
