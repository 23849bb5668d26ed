"""An origin that keeps every byte it is sent, and two parsers that must agree on what they say.

Neither of the two is the gateway's: h11 is written from the grammar of RFC 9112; httptools is
llhttp in its strictest form, fed anew from the first byte of each connection.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field

import h11
import httptools

from tests.e2e.raw import TIMEOUT_S, RawConnection, RawUpstream

CANARY = "/canary-"
"""Targets of the requests that are sent after each case, to see that all is well."""


@dataclass(frozen=True)
class Seen:
    """One request, as both parsers read it.

    Attributes:
        method, target: of its first line.
        fields: names in lower case, and values, in order.
        body: without chunks.
    """

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    body: bytes

    def all(self, name: str) -> list[str]:
        """The values of the fields of this name."""
        return [value for found, value in self.fields if found == name.lower()]


@dataclass
class _Log:
    data: bytearray = field(default_factory=bytearray)
    has_ended: threading.Event = field(default_factory=threading.Event)


class OracleOrigin(RawUpstream):
    """Answers each request with its target; `take` tells what came since it was asked last."""

    def __init__(self) -> None:
        self._logs: list[_Log] = []
        self._lock = threading.Lock()
        super().__init__(self._answer)

    def _answer(self, connection: RawConnection) -> None:
        log = _Log()
        with self._lock:
            self._logs.append(log)
        try:
            # An idle connection may outlast the time that a read may take, and one may end in
            # the middle of a request; `take` judges the bytes.
            with contextlib.suppress(TimeoutError, h11.RemoteProtocolError):
                self._serve_all(connection, log)
        finally:
            log.has_ended.set()

    def _serve_all(self, connection: RawConnection, log: _Log) -> None:
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        target = b""
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                connection.wait()
                with self._lock:
                    data = connection.read_some()
                    log.data += data
                parser.receive_data(data)
            elif isinstance(event, h11.Request):
                target = event.target
            elif isinstance(event, h11.EndOfMessage):
                head = b"HTTP/1.1 200 OK\r\nX-Origin: 1\r\nContent-Length: %d\r\n\r\n" % len(target)
                answer = h11.Response(status_code=200, headers=[("Content-Length", "0")])
                parser.send(answer)
                parser.send(h11.EndOfMessage())
                parser.start_next_cycle()
                connection.send(head + target)
            elif isinstance(event, h11.ConnectionClosed):
                return

    def take(self, *, waits_for_end: bool = False) -> tuple[list[Seen], bytes]:
        """The whole requests that came since the last call, and the bytes of those that did not.

        Args:
            waits_for_end: whether a request was broken off, so that its connection ends.

        Raises:
            AssertionError: the two parsers disagree.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while self.has_unread():
            assert time.monotonic() < deadline, "bytes that no thread reads"
            time.sleep(0.001)
        with self._lock:
            logs = list(self._logs)
        requests: list[Seen] = []
        rest = b""
        for log in logs:
            if waits_for_end and _by_h11(bytes(log.data))[1]:
                assert log.has_ended.wait(TIMEOUT_S), "a broken request's connection stays open"
            with self._lock:
                data = bytes(log.data)
                log.data.clear()
                if log.has_ended.is_set():
                    self._logs.remove(log)
            seen, left = _by_h11(data)
            also = _by_llhttp(data)
            assert seen == also, f"two readings of {data!r}"
            requests += seen
            rest += left
        return requests, rest


def _by_h11(data: bytes) -> tuple[list[Seen], bytes]:
    seen: list[Seen] = []
    return seen, read_by_h11(data, seen)


def read_by_h11(data: bytes, seen: list[Seen], empty_lines: bytes = b"") -> bytes:
    """Append the requests in a connection's bytes.

    Args:
        data: the bytes.
        seen: what they are appended to.
        empty_lines: what may stand before a request, any number of times; h11 takes none.

    Returns:
        The bytes of one that is not whole.

    Raises:
        h11.RemoteProtocolError: what follows those is no request.
    """
    while data:
        while empty_lines and data.startswith(empty_lines):
            data = data.removeprefix(empty_lines)
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        parser.receive_data(data)
        head = parser.next_event()
        if not isinstance(head, h11.Request):
            return data
        body = b""
        while isinstance(event := parser.next_event(), h11.Data):
            body += bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            return data
        fields = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in head.headers)
        method, target = head.method.decode("ascii"), head.target.decode("latin-1")
        seen.append(Seen(method, target, fields, body))
        data = parser.trailing_data[0]
    return b""


class _Reading:
    """What httptools calls while it parses."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.parser = httptools.HttpRequestParser(self)

    def on_message_begin(self) -> None:
        self._target = self._body = b""
        self._fields: list[tuple[str, str]] = []

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        text = value.decode("latin-1").strip(" \t")
        self._fields.append((name.decode("latin-1").lower(), text))

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method = self.parser.get_method().decode("ascii")
        target = self._target.decode("latin-1")
        self.seen.append(Seen(method, target, tuple(self._fields), self._body))


def _by_llhttp(data: bytes) -> list[Seen]:
    seen: list[Seen] = []
    while data:
        reading = _Reading()
        try:
            reading.parser.feed_data(data)
            data = b""
        except httptools.HttpParserUpgrade as wish:
            # It was not granted: what follows is HTTP.
            data = data[wish.args[0] :]
        seen += reading.seen
    return seen
