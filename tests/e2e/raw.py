"""Both ends of the wire in plain bytes: an upstream that does as told, and a client.

For what no well-behaved server or client would ever do, and for what they would hide.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import select
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

TIMEOUT_S: Final = 20.0
"""After this a read fails: a test ends, and says where."""

OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def header_values(head: bytes, name: str) -> list[str]:
    """The values of all fields of this name in a message's head, in any case."""
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    wanted = name.lower().encode("ascii")
    return [
        value.strip().decode("latin-1") for found, _, value in fields if found.lower() == wanted
    ]


def is_readable(sock: socket.socket, seconds: float | None = None) -> bool:
    """Wait for something to read, or to accept, or the end; return whether it came."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def _count_unread(sock: socket.socket) -> int:
    count = bytearray(4)
    # A socket that is closed has nothing to read.
    with contextlib.suppress(OSError, ValueError):
        fcntl.ioctl(sock, termios.FIONREAD, count)
    return int.from_bytes(count, sys.byteorder)


class RawConnection:
    """A connection from the gateway to a `RawUpstream`."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._rest = b""

    def read_head(self) -> bytes:
        """The next request's head with its empty line; empty if the connection has ended.

        The gateway may keep a connection idle for as long as it likes.
        """
        while b"\r\n\r\n" not in self._rest:
            try:
                data = self._sock.recv(1 << 16)
            except TimeoutError:
                if self._rest:
                    raise
                continue
            if not data:
                return b""
            self._rest += data
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        return head + b"\r\n\r\n"

    def read_some(self) -> bytes:
        """Whatever comes next; empty if the connection has ended."""
        data, self._rest = self._rest, b""
        return data or self._sock.recv(1 << 16)

    def wait(self) -> None:
        """Wait until there is something to read, or the end."""
        if not is_readable(self._sock, TIMEOUT_S):
            raise TimeoutError

    def read_body(self, size: int) -> bytes:
        """This many bytes after a head."""
        while len(self._rest) < size:
            data = self._sock.recv(1 << 16)
            if not data:
                break
            self._rest += data
        body, self._rest = self._rest[:size], self._rest[size:]
        return body

    def discard_body(self, size: int) -> int:
        """Read this many bytes after a head without keeping them; returns how many came."""
        found = len(self.read_body(min(size, len(self._rest))))
        buffer = bytearray(1 << 20)
        while found < size:
            count = self._sock.recv_into(buffer, min(size - found, len(buffer)))
            if not count:
                break
            found += count
        return found

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._sock.sendall(data)

    def reset(self) -> None:
        """End the connection with a reset."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    def wait_for_end(self) -> float:
        """Wait until the gateway has closed the connection; returns when that was."""
        with contextlib.suppress(ConnectionError):
            while self._sock.recv(1 << 16):
                pass
        return time.monotonic()


class RawUpstream:
    """A server whose every connection is served by a function, in a thread of its own.

    Args:
        serve: speaks with the gateway; what it raises fails the test, except that the gateway
            has ended the connection.
    """

    def __init__(self, serve: Callable[[RawConnection], None]) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []
        self._accepting = threading.Lock()
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        if error is None and self._failures:
            raise self._failures[0]

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        # It ends when the listener is closed.
        with contextlib.suppress(OSError, ValueError):
            while True:
                is_readable(self._listener)
                with self._accepting:
                    sock, _ = self._listener.accept()
                    self._sockets.append(sock)
                self._start(lambda sock=sock: self._run(sock))  # type: ignore[misc]

    def has_unread(self) -> bool:
        """Return whether the gateway has sent what was not read yet."""
        with self._accepting:
            return is_readable(self._listener, 0) or any(map(_count_unread, self._sockets))

    def _run(self, sock: socket.socket) -> None:
        try:
            with sock:
                self._serve(RawConnection(sock))
        except ConnectionError:
            pass
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            self._failures.append(error)


class RecordingUpstream(RawUpstream):
    """Answers every request with 200, and remembers it.

    Attributes:
        heads: of all requests, in the order in which they came.
        arrivals: when each came, as `time.monotonic` tells it.
    """

    def __init__(self, answer: bytes = OK) -> None:
        self._answer = answer
        self.heads: list[bytes] = []
        self.arrivals: list[float] = []
        super().__init__(self._record)

    def _record(self, connection: RawConnection) -> None:
        while head := connection.read_head():
            self.arrivals.append(time.monotonic())
            self.heads.append(head)
            for size in header_values(head, "Content-Length"):
                connection.read_body(int(size))
            connection.send(self._answer)


@dataclass(frozen=True)
class Answer:
    """What a client got.

    Attributes:
        status: the status code.
        fields: header fields, in order and as written.
        body: the whole body.
    """

    status: int
    fields: list[tuple[str, str]]
    body: bytes

    def field(self, name: str) -> str:
        """The one field of this name, in any case; KeyError if there is none or more."""
        found = self.all(name)
        if len(found) != 1:
            raise KeyError(f"{name}: {found}")
        return found[0]

    def all(self, name: str) -> list[str]:
        """The values of all fields of this name."""
        return [value for found, value in self.fields if found.lower() == name.lower()]


class RawClient:
    """A connection to a gateway.

    Args:
        port: where the gateway listens.
        source: the address to come from.
        host: where it listens.
    """

    def __init__(self, port: int, source: str = "", host: str = "127.0.0.1") -> None:
        self.sock = socket.create_connection(
            (host, port), timeout=TIMEOUT_S, source_address=(source, 0) if source else None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.sock.sendall(data)

    def read(self, method: str = "GET") -> Answer:
        """The next answer; one that is cut off raises `http.client.HTTPException` or OSError."""
        response = http.client.HTTPResponse(self.sock, method=method)
        response.begin()
        body = response.read()
        return Answer(response.status, response.getheaders(), body)

    def get(self, path: str = "/", *fields: str, method: str = "GET") -> Answer:
        """Ask and read the answer; `fields` are lines of the head."""
        self.request(path, *fields, method=method)
        return self.read(method)

    def request(self, path: str = "/", *fields: str, method: str = "GET") -> None:
        """Ask only."""
        lines = (f"{method} {path} HTTP/1.1", "Host: gateway.test", *fields, "", "")
        self.send("\r\n".join(lines).encode("latin-1"))

    def has_ended(self) -> bool:
        """Whether the gateway closes the connection without sending more."""
        return self.sock.recv(1) == b""

    def close(self) -> None:
        """Leave."""
        self.sock.close()


def get(port: int, path: str = "/", *fields: str, method: str = "GET", source: str = "") -> Answer:
    """One request on a connection of its own."""
    with RawClient(port, source) as client:
        return client.get(path, *fields, method=method)
