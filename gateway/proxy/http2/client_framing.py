"""The frames of a connection to an upstream: requests out, answers in. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from gateway.proxy.http2.framing import (
    IS_AVAILABLE,
    SHARED_GIVERS,
    Field,
    Framing,
    StreamSink,
    limited,
)

try:
    import ngh2
except ImportError:
    ngh2 = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from ngh2 import (
        GoAwayReceived,
        InformationalResponseReceived,
        ResponseReceived,
        SettingsReceived,
        TrailersReceived,
    )

STREAM_WINDOW: Final = 256 * 1024
"""Bytes of an answer that an upstream may send before they are passed on."""
FIELDS_MAX: Final = 1000
"""Most fields in the head of an answer, of any size."""

_MAX_CONCURRENT_STREAMS: Final = 3


class AnswerSink(StreamSink, Protocol):
    """What the events of a connection to an upstream are given to."""

    def interim_received(self, stream: int, fields: tuple[Field, ...]) -> None:
        """Take an interim answer."""

    def answer_received(self, stream: int, fields: tuple[Field, ...], *, is_whole: bool) -> None:
        """Take the head of an answer; without a body if it is whole."""

    def trailers_received(self, stream: int, fields: tuple[Field, ...]) -> None:
        """Take the end of an answer, with trailers."""

    def settings_received(self, most: int) -> None:
        """Note how many streams the upstream takes at a time; a negative number is for any."""

    def going_away(self, code: int) -> None:
        """Note that the upstream takes no more requests; those that it did not take are closed."""


class ClientFraming(Framing):
    """HTTP/2 of one connection, as its client.

    Args:
        sink: takes the events.
        max_head: most bytes in the head of an answer, as RFC 9113, section 6.5.2, counts them.
        streams: most streams at a time.
    """

    __slots__ = ("_sink",)

    def __init__(self, sink: AnswerSink, max_head: int, streams: int) -> None:
        assert IS_AVAILABLE
        super().__init__(ngh2.Connection(ngh2.Role.CLIENT, limited(max_head, FIELDS_MAX)))
        self._sink = sink
        self._connection.initiate_connection(
            {
                ngh2.Setting.ENABLE_PUSH: 0,
                ngh2.Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                ngh2.Setting.MAX_HEADER_LIST_SIZE: max_head,
            }
        )
        # One answer that is not read must not hold up the others.
        self._connection.set_local_window_size(STREAM_WINDOW * streams)

    def __repr__(self) -> str:
        return "<ClientFraming>"

    def dispatch(self) -> None:
        """As in `Framing`."""
        if self._is_lost:
            return
        for event in self._connection.events():
            give = _GIVERS.get(type(event))
            if give is not None:
                give(self, self._sink, event)

    @property
    def may_begin(self) -> bool:
        """Return whether another request may be sent."""
        return not self._is_lost and self._connection.can_send_request

    def begin(self, fields: Iterable[Field], *, is_whole: bool) -> int:
        """Send the head of a request; return the number of its stream, or 0 if none can begin."""
        if self._is_lost:
            return 0
        try:
            return self._connection.send_request(fields, end_stream=is_whole)
        except ngh2.NGH2Error:
            return 0

    # Events.

    def give_interim(self, sink: AnswerSink, event: InformationalResponseReceived) -> None:
        """Give an interim answer."""
        sink.interim_received(event.stream_id, event.headers)

    def give_answer(self, sink: AnswerSink, event: ResponseReceived) -> None:
        """Give the head of an answer."""
        sink.answer_received(event.stream_id, event.headers, is_whole=event.end_stream)

    def give_trailers(self, sink: AnswerSink, event: TrailersReceived) -> None:
        """Give the end of an answer."""
        sink.trailers_received(event.stream_id, event.headers)

    def give_settings(self, sink: AnswerSink, event: SettingsReceived) -> None:
        """Give the number of streams that the upstream takes."""
        sink.settings_received(event.settings.get(_MAX_CONCURRENT_STREAMS, -1))

    def give_going_away(self, sink: AnswerSink, event: GoAwayReceived) -> None:
        """Give the end of new requests."""
        sink.going_away(event.error_code)


_GIVERS: Final[dict[type, Callable[..., None]]] = (
    {
        ngh2.InformationalResponseReceived: ClientFraming.give_interim,
        ngh2.ResponseReceived: ClientFraming.give_answer,
        ngh2.TrailersReceived: ClientFraming.give_trailers,
        ngh2.SettingsReceived: ClientFraming.give_settings,
        ngh2.GoAwayReceived: ClientFraming.give_going_away,
        **SHARED_GIVERS,
    }
    if IS_AVAILABLE
    else {}
)
