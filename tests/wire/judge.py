"""What a strict client makes of the bytes that it gets: h11, which shares nothing with Sluice."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Self

import h11

from tests.e2e.raw import TIMEOUT_S

Field = tuple[bytes, bytes]


@dataclass
class Heard:
    """An answer as a strict client hears it.

    Attributes:
        interim: status and fields of each interim answer.
        status: of the final answer; 0 if there is none.
        fields: of it, names in lower case.
        body: what came of it.
        trailers: its trailers.
        is_whole: whether it ended as its framing says it does.
        keeps_alive: whether the connection may go on.
    """

    interim: list[tuple[int, list[Field]]] = field(default_factory=list)
    status: int = 0
    fields: list[Field] = field(default_factory=list)
    body: bytes = b""
    trailers: list[Field] = field(default_factory=list)
    is_whole: bool = False
    keeps_alive: bool = False

    def all(self, name: bytes) -> list[bytes]:
        """The values of a field."""
        return [value for found, value in self.fields if found == name]

    def note(self, event: object) -> None:
        """One more thing that h11 found."""
        if isinstance(event, h11.InformationalResponse):
            self.interim.append((event.status_code, list(event.headers)))
        elif isinstance(event, h11.Response):
            self.status = event.status_code
            self.fields = list(event.headers)
        elif isinstance(event, h11.Data):
            self.body += event.data
        elif isinstance(event, h11.EndOfMessage):
            self.trailers = list(event.headers)
            self.is_whole = True
        else:
            raise h11.RemoteProtocolError("closed")


class StrictClient:
    """A connection to a gateway whose answers h11 reads.

    Args:
        port: where the gateway listens.
    """

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.sock.sendall(data)

    def end(self) -> None:
        """Say that nothing more will be sent."""
        self.sock.shutdown(socket.SHUT_WR)

    def ask(self, request: bytes) -> Heard:
        """Send one request and hear its answer."""
        self.send(request)
        return self.hear(request.split(b" ", 1)[0])

    def hear(self, method: bytes = b"GET") -> Heard:
        """The next answer, to a request of this method."""
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        parser.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
        parser.send(h11.EndOfMessage())
        if self._rest:
            parser.receive_data(self._rest)
        heard = Heard()
        try:
            while not heard.is_whole:
                event = parser.next_event()
                if event is h11.NEED_DATA:
                    parser.receive_data(self.sock.recv(1 << 16))
                else:
                    heard.note(event)
        except (ConnectionError, h11.RemoteProtocolError):
            return heard
        heard.keeps_alive = parser.their_state is h11.DONE
        self._rest = parser.trailing_data[0]
        return heard

    def has_ended(self) -> bool:
        """Whether the connection ends in order without a further byte; a reset raises."""
        return not self._rest and self.sock.recv(1) == b""

    def is_over(self) -> bool:
        """Whether the connection ends without a further byte, in order or not."""
        if self._rest:
            return False
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True
