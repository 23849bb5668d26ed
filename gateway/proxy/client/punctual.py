"""How long a client may take for each thing that it is to do, and what happens after that."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from gateway.net.unsent import unsent_bytes
from gateway.proxy.client.hang_up import HangUpWatch
from gateway.proxy.client.intake import RequestIntake
from gateway.proxy.client.reset import reset
from gateway.proxy.client.timeouts import ClientTimeouts

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.proxy.client.handler import Handler, ServedRequest
    from gateway.proxy.client.request_parser import RequestParser

LAST_CALL_S = 0.25
"""How long an idle connection is kept when the gateway stops: a request may be on its way."""

FAIR_S = 1.0
"""For so long a client may keep its place with a head that is not complete, when there is no
room left for others."""


class PunctualIntake(RequestIntake):
    """Takes requests within time limits, which `gateway.base.deadlines` looks after.

    Args:
        server, parser, max_head, options: as in `RequestIntake`.
        handler: serves the requests.
        patience: how long the client may take.

    Attributes:
        due: the loop's time at which the client has taken too long; `inf` for never.
    """

    __slots__ = (
        "_current",
        "_handler",
        "_hang_up_watch",
        "_is_between_requests",
        "_is_last",
        "_on_late",
        "_patience",
        "_unread",
        "due",
    )

    def __init__(
        self,
        server: web.Server,
        handler: Handler[Any],
        patience: ClientTimeouts,
        parser: RequestParser,
        max_head: int,
        **options: Any,
    ) -> None:
        super().__init__(server, parser, max_head, **options)
        self._handler = handler
        self._patience = patience
        self._current: ServedRequest | None = None
        self._hang_up_watch: HangUpWatch | None = None
        # Nothing was asked, and nothing waits to be served.
        self._is_between_requests = False
        self._is_last = False
        self._unread = 0
        self._on_late: Callable[[], None] = self._head_is_late
        self.due = inf

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        return self._current is not None

    def expire(self) -> None:
        """The client has taken too long with what it was to do."""
        self.due = inf
        self._on_late()

    def spare(self, now: float) -> int:
        """How well others can do without it: 0 for not at all, then the less the better.

        Who has been idle is let go before whoever is slow with the head of a request.
        """
        if self._current is not None or self.is_ending or self.due == inf or self._is_sending:
            return 0
        if self._is_between_requests:
            return 1
        is_slow = self.due - now <= self._patience.head - FAIR_S
        return 2 if is_slow and self._on_late == self._head_is_late else 0

    def make_room(self) -> None:
        """Close, since the place is needed."""
        self._give_up()

    def expect_body(self, on_late: Callable[[], None], size: int, waited_s: float) -> None:
        """A piece of the request's body is due.

        Args:
            on_late: called if it does not come.
            size: bytes of the body that are here already.
            waited_s: how long they were waited for.
        """
        self.due = self._loop.time() + self._patience.for_body(size, waited_s)
        self._on_late = on_late

    def _head_is_late(self) -> None:
        self._handler.head_is_late()
        self._give_up()

    def _give_up(self) -> None:
        """Close now; what was sent and is still not read will not be read."""
        if self._is_sending:
            self.break_off()
        else:
            self.force_close()

    @property
    def _is_sending(self) -> bool:
        """Whether there are bytes for the client that the kernel has not taken yet."""
        return self.transport is not None and self.transport.get_write_buffer_size() > 0

    def _idle_is_over(self) -> None:
        """Close, unless the client is still reading its last answer."""
        if not self._is_sending:
            self.force_close()
        elif self._is_last:
            self._on_late = self._idle_is_over
            self.due = self._loop.time() + LAST_CALL_S
        else:
            self._await_reader()

    def _pause_transport_reading(self) -> None:
        """Read nothing for now; whether the client is still there is then looked for."""
        super()._pause_transport_reading()
        if self.transport is None:
            return
        if self._hang_up_watch is None:
            self._hang_up_watch = HangUpWatch(self._is_deaf, self.transport.abort)
        self._hang_up_watch.begin(self.transport)

    def _is_deaf(self) -> bool:
        return self._reading_paused or self._buffer_paused

    def _linger(self) -> None:
        """The client may go on sending what nobody wants for as long as it reads its answer."""
        self._unread = unsent_bytes(self.transport)
        self._on_late = self._linger_is_over
        self.due = self._loop.time() + self._patience.linger

    def _linger_is_over(self) -> None:
        left = unsent_bytes(self.transport)
        if left and self._patience.is_progress(self._unread - left):
            self._linger()
        else:
            self.break_off()

    def _await_reader(self) -> None:
        """The client is to take what was sent; progress gives it more time."""
        self._unread = unsent_bytes(self.transport)
        self._on_late = self._reader_is_late
        self.due = self._loop.time() + self._patience.body

    def _reader_is_late(self) -> None:
        if self._current is None and not self._is_sending:
            self.force_close()
        elif self._patience.is_progress(self._unread - unsent_bytes(self.transport)):
            self._await_reader()
        else:
            self._handler.reader_is_late(self._current)
            self.break_off()

    def break_off(self) -> None:
        """End the connection so that a half-sent answer cannot look like a whole one."""
        self._force_close = True
        if self.transport is not None:
            reset(self.transport)
