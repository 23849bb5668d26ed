"""Writes log lines without ever delaying or failing a request.

Lines of one turn of the event loop are written together (`LineWriter`). A regular file is written
directly, which takes microseconds thanks to the kernel's cache. All other outputs (a pipe to a
container runtime, a socket to the journal, a terminal) may stop reading at any moment: a blocking
write would stop the gateway, and switching the output to non-blocking mode would affect every
process that shares it. So a thread writes there, from a bounded backlog.

Lines that cannot be written are dropped and counted.

Several processes may write to one output. Writes to a regular file are atomic. Writes to a pipe are
atomic up to `PIPE_BUF` bytes, so lines are written in pieces of that size; for longer lines the
processes use a shared lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from gateway.observe.metrics import LogMetrics

FLUSH_AT_CHARS: Final = 64 * 1024
"""Once the lines of a turn are this long in total, they are written before it ends."""

BACKLOG_BYTES: Final = 8 * 1024 * 1024
"""The backlog for a stalled reader: some 25,000 lines of requests."""

CLOSE_TIMEOUT_S: Final = 2.0
"""How long the last lines may take when the gateway stops."""

PIECE_BYTES: Final = select.PIPE_BUF - 1
"""Added before the next line if one was written only partly."""

LF: Final = 0x0A

STANDARD_STREAMS: Final = {"stdout": 1, "stderr": 2, "/dev/stdout": 1, "/dev/stderr": 2}

_DESCRIPTOR_PATH: Final = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,7})")


class Output(Protocol):
    """Writes whole lines; safe to use from any thread."""

    def write(self, lines: bytes) -> None:
        """Write lines, or drop and count them. Never raises."""

    def reopen(self) -> None:
        """Open the same path again, after a rename; on `OSError` everything stays as it was."""

    def close(self) -> None:
        """Write the rest, for at most `CLOSE_TIMEOUT_S`, and close."""


def open_output(target: str, metrics: LogMetrics, lock: int | None = None) -> Output:
    """Open `stdout`, `stderr` or the path of a file, which is created if needed.

    Args:
        target: the name; /dev/stdout, /dev/stderr and /dev/fd/N mean these streams.
        metrics: counts dropped lines.
        lock: a file, open for reading and writing, shared by the processes that write to the same
            output; None if there are no others.

    Raises:
        OSError: the path cannot be opened for writing.
    """
    path = None
    descriptor = _inherited(target)
    if descriptor is None:
        path = target
        descriptor = _open(path)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return FileOutput(descriptor, path, metrics)
    return StreamOutput(descriptor, metrics, lock)


def _inherited(target: str) -> int | None:
    """Return a copy of a descriptor that this process was started with, if the name means one.

    Linux can open entries of /dev/fd by path, except for sockets, and systemd gives services a
    socket as stdout.

    Raises:
        OSError: there is no such descriptor, or it is one of the gateway's own.
    """
    standard = STANDARD_STREAMS.get(target)
    if standard is not None:
        return os.dup(standard)
    match = _DESCRIPTOR_PATH.fullmatch(target)
    if match is None:
        return None
    number = int(match[1])
    # The gateway's own descriptors are excluded: a log written to one would break a connection.
    if number > max(STANDARD_STREAMS.values()) and not os.get_inheritable(number):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    return os.dup(number)


def _open(path: str) -> int:
    # With O_NONBLOCK, a named pipe without a reader is an error now, instead of a wait.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o640)
    os.set_blocking(descriptor, True)
    return descriptor


class FileOutput:
    """A regular file, written by the caller's thread.

    Args:
        descriptor: the open file, owned by this object from now on.
        path: its path, to open it again after a rotation; None if it cannot be opened again.
        metrics: counts dropped lines.
    """

    def __init__(self, descriptor: int, path: str | None, metrics: LogMetrics) -> None:
        self._descriptor = _DescriptorOutput(descriptor)
        self._path = path
        self._metrics = metrics
        self._lock = threading.Lock()

    def write(self, lines: bytes) -> None:
        """Write lines now, or drop and count them."""
        with self._lock:
            self._metrics.lines_dropped += self._descriptor.write(lines)

    def reopen(self) -> None:
        """Continue in a new file of the same path."""
        if self._path is None:
            return
        descriptor = _open(self._path)
        with self._lock:
            self._descriptor.replace(descriptor)

    def close(self) -> None:
        """Close the file; later lines are dropped."""
        with self._lock:
            self._descriptor.close()


class StreamOutput:
    """A pipe, socket or terminal, written by a thread that may wait for its reader.

    Args:
        descriptor: the open stream, owned by this object from now on.
        metrics: counts dropped lines.
        lock: as in `open_output`.
    """

    def __init__(self, descriptor: int, metrics: LogMetrics, lock: int | None = None) -> None:
        self._descriptor = _DescriptorOutput(descriptor)
        self._metrics = metrics
        self._lock = lock
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._is_closing = False
        self._changed = threading.Condition()
        # A daemon thread: a reader that has stopped must not keep the process alive.
        self._writer = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._writer.start()

    def write(self, lines: bytes) -> None:
        """Pass lines to the thread, or drop and count them if its backlog is full."""
        with self._changed:
            if self._is_closing or self._backlog_bytes + len(lines) > BACKLOG_BYTES:
                self._metrics.lines_dropped += lines.count(b"\n")
                return
            self._backlog.append(lines)
            self._backlog_bytes += len(lines)
            self._changed.notify()

    def reopen(self) -> None:
        """Do nothing: a stream has no path."""

    def close(self) -> None:
        """Wait a little for the thread to write its backlog; drop the rest."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._writer.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while lines := self._take():
            dropped = self._write(lines)
            with self._changed:
                self._backlog_bytes -= len(lines)
                self._metrics.lines_dropped += dropped
        self._descriptor.close()

    def _write(self, lines: bytes) -> int:
        """Write lines; returns how many could not be written completely."""
        if self._lock is None:
            return self._descriptor.write(lines)
        return sum(self._write_piece(piece, self._lock) for piece in _pieces(lines))

    def _write_piece(self, piece: bytes, lock: int) -> int:
        # The kernel keeps small writes apart; only larger ones need the lock.
        is_small = len(piece) <= PIECE_BYTES
        fcntl.lockf(lock, fcntl.LOCK_SH if is_small else fcntl.LOCK_EX)
        try:
            return self._descriptor.write(piece)
        finally:
            fcntl.lockf(lock, fcntl.LOCK_UN)

    def _take(self) -> bytes:
        """Return all waiting lines, joined; empty when there will be no more."""
        with self._changed:
            while not self._backlog and not self._is_closing:
                self._changed.wait()
            lines = b"".join(self._backlog)
            self._backlog.clear()
            return lines


def _pieces(lines: bytes) -> Iterator[bytes]:
    """Yield whole lines in pieces of at most `PIECE_BYTES`; a longer line is a piece of its own."""
    begin = 0
    while begin < len(lines):
        end = lines.rfind(b"\n", begin, begin + PIECE_BYTES) + 1
        if not end:
            end = lines.find(b"\n", begin) + 1 or len(lines)
        yield lines[begin:end]
        begin = end


class _DescriptorOutput:
    """A descriptor to write whole lines to, which counts those that fail."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_torn = False

    def write(self, lines: bytes) -> int:
        """Write lines; returns how many could not be written completely."""
        # A partly written line must not absorb the next one.
        prefix = b"\n" if self._is_torn else b""
        rest = memoryview(prefix + lines)
        size = len(rest)
        try:
            while rest:
                rest = rest[self._write_some(rest) :]
        except OSError:
            written = size - len(rest)
            if written:
                self._is_torn = written > len(prefix) and lines[written - len(prefix) - 1] != LF
            return lines.count(b"\n", max(written - len(prefix), 0))
        self._is_torn = False
        return 0

    def _write_some(self, lines: memoryview) -> int:
        while True:
            try:
                return os.write(self._descriptor, lines)
            except BlockingIOError:
                # Another process that shares the stream made it non-blocking.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()

    def replace(self, descriptor: int) -> None:
        """Continue with another descriptor; this one is closed."""
        self.close()
        self._descriptor = descriptor
        self._is_torn = False

    def close(self) -> None:
        """Close the descriptor; later lines are not written."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class LineWriter:
    """Joins the lines of one turn of the event loop; only for that loop's thread.

    Args:
        output: the output to write to.
        schedule: calls a function soon: `loop.call_soon`, or `functools.partial(loop.call_later,
            0.1)` for fewer and later writes.
    """

    __slots__ = ("_chars", "_lines", "_output", "_schedule")

    def __init__(self, output: Output, schedule: Callable[[Callable[[], None]], object]) -> None:
        self._output = output
        self._schedule = schedule
        self._lines: list[str] = []
        self._chars = 0

    def write(self, line: str) -> None:
        """Add one line, with its end, to those of this turn."""
        lines = self._lines
        if not lines:
            self._schedule(self.flush)
        lines.append(line)
        self._chars += len(line)
        if self._chars >= FLUSH_AT_CHARS:
            self.flush()

    def flush(self) -> None:
        """Write all lines collected so far."""
        if self._lines:
            lines = "".join(self._lines)
            self._lines.clear()
            self._chars = 0
            self._output.write(lines.encode())
