"""What a client has to do next, by when, and what happens if it is late.

Each connection has a `ClientDeadline`; `gateway.base.deadlines` checks all of them a few times
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
"""How long a client may keep its connection with an incomplete head when there is no room left
for others."""

_HEAD: Final = 0
_REQUEST: Final = 1
_LAST_REQUEST: Final = 2
_READING: Final = 3
_LINGERING: Final = 4
_OTHER: Final = 5


class TimedClient(Protocol):
    """The parts of a connection that its deadline uses."""

    @property
    def transport(self) -> asyncio.Transport | None:
        """Return the transport; None once the connection is closed."""

    @property
    def current(self) -> ServedRequest | None:
        """Return the request that is being served."""

    def close(self) -> None:
        """Close in order."""

    def break_off(self) -> None:
        """Reset the connection."""


class LateClients(Protocol):
    """Counts clients that are late."""

    def head_is_late(self) -> None:
        """Count a client that took too long to send the head of a request."""

    def reader_is_late(self, served: ServedRequest | None) -> None:
        """Count a client that took too long to read a response or the rest of the last one."""


def _nothing() -> None:
    """Do nothing: the default until a handler is set."""


class ClientDeadline:
    """The deadline of one client.

    Args:
        timeouts: see below.
        counts: counts late clients.

    Attributes:
        timeouts: how long the client may take.
        due: the loop's time at which the client is late; `inf` while it has nothing to do.
    """

    __slots__ = ("_counts", "_on_late", "_unread", "_what", "due", "timeouts")

    def __init__(self, timeouts: ClientTimeouts, counts: LateClients) -> None:
        self.timeouts = timeouts
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
        self.due = now + self.timeouts.head

    def send_request(self, now: float) -> None:
        """Give the client time to begin another request."""
        self._what = _REQUEST
        self.due = now + self.timeouts.idle

    def send_last_request(self, now: float) -> None:
        """Give a request that may already be on its way time to arrive."""
        self._what = _LAST_REQUEST
        self.due = now + LAST_CALL_S

    def send_body(
        self, now: float, on_late: Callable[[], None], size: int, waited_s: float
    ) -> None:
        """Give the client time to send the next piece of a body.

        Args:
            now: the loop's time.
            on_late: called if the piece does not come.
            size: bytes of the body that have arrived.
            waited_s: how long the gateway has waited for them.
        """
        self._what = _OTHER
        self._on_late = on_late
        self.due = now + self.timeouts.for_body(size, waited_s)

    def read(self, now: float, transport: asyncio.Transport | None) -> None:
        """Give the client time to read what was sent; progress extends it."""
        self._what = _READING
        self._unread = unsent_bytes(transport)
        self.due = now + self.timeouts.body

    def read_and_leave(self, now: float, transport: asyncio.Transport | None) -> None:
        """Discard what the client sends for as long as it reads its last response."""
        self._what = _LINGERING
        self._unread = unsent_bytes(transport)
        self.due = now + self.timeouts.linger

    def other(self, due: float, on_late: Callable[[], None]) -> None:
        """Use a deadline that another object moves; `on_late` must set `due` again."""
        self._what = _OTHER
        self._on_late = on_late
        self.due = due

    @property
    def is_for_head(self) -> bool:
        """Return whether the client has to send the rest of a head."""
        return self._what == _HEAD and self.due != inf

    @property
    def is_for_reading(self) -> bool:
        """Return whether the client has to read what was sent."""
        return self._what == _READING and self.due != inf

    def is_slow_head(self, now: float) -> bool:
        """Return whether the client had a fair time to send a head, and has not sent it."""
        return self._what == _HEAD and self.due - now <= self.timeouts.head - FAIR_S

    # What happens if it is late.

    def expire(self, client: TimedClient, now: float) -> None:
        """Handle a client that is late."""
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
            if left and self.timeouts.is_progress(self._unread - left):
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
        elif self.timeouts.is_progress(self._unread - unsent_bytes(client.transport)):
            self.read(now, client.transport)
        else:
            self._counts.reader_is_late(client.current)
            client.break_off()


def is_sending(client: TimedClient) -> bool:
    """Return whether the kernel has not yet taken all bytes for the client."""
    transport = client.transport
    return transport is not None and transport.get_write_buffer_size() > 0


def give_up(client: TimedClient) -> None:
    """Close now, and discard what was sent and not read."""
    if is_sending(client):
        client.break_off()
    else:
        client.close()
