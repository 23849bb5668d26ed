"""Lines reach files and pipes whole and in order, and trouble there never comes back."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.observe.logs import LineWriter, open_output
from gateway.observe.logs.output import BACKLOG_BYTES, FLUSH_AT_CHARS, FileOutput, StreamOutput
from gateway.observe.metrics import LogMetrics

ROOT = Path(__file__).parents[3]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """A disk that is full at `size` bytes, as far as this process can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class CountingOutput:
    """Keeps what it is given, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, lines: bytes) -> None:
        """Keep."""
        self.writes.append(lines)

    def reopen(self) -> None:
        """Not expected."""
        raise AssertionError

    def close(self) -> None:
        """Not expected."""
        raise AssertionError


async def test_lines_of_one_turn_travel_together() -> None:
    """One write for each turn of the loop that had lines; none for the others."""
    output = CountingOutput()
    writer = LineWriter(output, asyncio.get_running_loop().call_soon)
    writer.write("a\n")
    writer.write("b\n")
    assert output.writes == []
    await asyncio.sleep(0)
    assert output.writes == [b"a\nb\n"]
    await asyncio.sleep(0)
    writer.write("c\n")
    await asyncio.sleep(0)
    assert output.writes == [b"a\nb\n", b"c\n"]


def test_a_turn_of_many_lines_is_written_in_between() -> None:
    """What waits in memory is bounded, and nothing is written twice."""
    output = CountingOutput()
    scheduled: list[Callable[[], None]] = []
    writer = LineWriter(output, scheduled.append)
    lines = [f"{number:099}\n" for number in range(2000)]
    for line in lines:
        writer.write(line)
    for flush in scheduled:
        flush()
    assert b"".join(output.writes) == "".join(lines).encode()
    assert len(output.writes) > 2
    assert max(map(len, output.writes)) < FLUSH_AT_CHARS + 100


def test_file_is_made_and_appended_to(tmp_path: Path) -> None:
    """A new file is not readable by others; an existing one is never truncated."""
    path = tmp_path / "access.log"
    for text in (b"one\n", b"two\n"):
        output = open_output(str(path), LogMetrics())
        output.write(text)
        output.close()
    assert path.read_bytes() == b"one\ntwo\n"
    assert not stat.S_IMODE(path.stat().st_mode) & 0o007


def test_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """At the start, a path that cannot be opened is the operator's to know."""
    with pytest.raises(FileNotFoundError):
        open_output(str(tmp_path / "missing" / "access.log"), LogMetrics())


def test_rotation_loses_nothing(tmp_path: Path) -> None:
    """Lines go to the renamed file until the reopen, then to the new one."""
    path = tmp_path / "access.log"
    output = open_output(str(path), LogMetrics())
    output.write(b"1\n")
    path.rename(tmp_path / "access.log.1")
    output.write(b"2\n")
    output.reopen()
    output.write(b"3\n")
    output.close()
    assert (tmp_path / "access.log.1").read_bytes() == b"1\n2\n"
    assert path.read_bytes() == b"3\n"


def test_rotation_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """If the path cannot be opened, that is logged and lines continue as before."""
    folder = tmp_path / "logs"
    folder.mkdir()
    output = open_output(str(folder / "access.log"), LogMetrics())
    folder.rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        output.reopen()
    output.write(b"still here\n")
    output.close()
    assert (tmp_path / "moved" / "access.log").read_bytes() == b"still here\n"


def test_full_disk_drops_whole_lines_and_recovers(tmp_path: Path) -> None:
    """A line torn by a full disk is counted as lost, and the next one begins on its own."""
    path = tmp_path / "access.log"
    metrics = LogMetrics()
    output = open_output(str(path), metrics)
    with file_size_limit(10):
        output.write(b"first\nsecond\nthird\n")
        assert metrics.lines_dropped == 2
        output.write(b"fourth\n")
        assert metrics.lines_dropped == 3
    output.write(b"fifth\n")
    output.write(b"sixth\n")
    output.close()
    assert path.read_bytes() == b"first\nseco\nfifth\nsixth\n"
    assert metrics.lines_dropped == 3


def test_full_disk_between_lines(tmp_path: Path) -> None:
    """Where the disk is full exactly at a line's end, no empty line comes of it."""
    path = tmp_path / "access.log"
    metrics = LogMetrics()
    output = open_output(str(path), metrics)
    with file_size_limit(6):
        output.write(b"first\nsecond\n")
    output.write(b"third\n")
    output.close()
    assert path.read_bytes() == b"first\nthird\n"
    assert metrics.lines_dropped == 1


def test_writing_after_close_is_counted(tmp_path: Path) -> None:
    """A late line is lost, not an error."""
    metrics = LogMetrics()
    output = open_output(str(tmp_path / "access.log"), metrics)
    output.close()
    output.write(b"late\n")
    assert metrics.lines_dropped == 1


def test_pipe_gets_everything_in_order() -> None:
    """More than a pipe holds arrives complete, close waits for it."""
    reader, descriptor = os.pipe()
    metrics = LogMetrics()
    output = StreamOutput(descriptor, metrics)
    chunks: list[bytes] = []

    def read_all() -> None:
        while chunk := os.read(reader, 65536):
            chunks.append(chunk)

    thread = threading.Thread(target=read_all)
    thread.start()
    lines = [f"{number:099}\n".encode() for number in range(5000)]
    for line in lines:
        output.write(line)
    output.close()
    thread.join()
    os.close(reader)
    assert b"".join(chunks) == b"".join(lines)
    assert metrics.lines_dropped == 0


def test_reader_that_stalls_costs_lines_and_nothing_else() -> None:
    """A full pipe never blocks the writer, and what waits for it is bounded."""
    reader, descriptor = os.pipe()
    metrics = LogMetrics()
    output = StreamOutput(descriptor, metrics)
    line = b"x" * 99_999 + b"\n"
    count = 2 * BACKLOG_BYTES // len(line)
    for _ in range(count):
        output.write(line)
    assert count * 0.4 < metrics.lines_dropped < count * 0.6
    dropped = metrics.lines_dropped
    received = 0
    expected = (count - dropped) * len(line)
    while received < expected:
        received += len(os.read(reader, 1 << 20))
    output.write(b"awake\n")
    assert os.read(reader, 100) == b"awake\n"
    output.close()
    assert os.read(reader, 100) == b""
    os.close(reader)
    assert metrics.lines_dropped == dropped


def test_reader_that_is_gone_costs_lines_and_nothing_else() -> None:
    """A closed pipe is counted, line by line."""
    reader, descriptor = os.pipe()
    os.close(reader)
    metrics = LogMetrics()
    output = StreamOutput(descriptor, metrics)
    output.write(b"one\ntwo\n")
    output.close()
    assert metrics.lines_dropped == 2
    output.write(b"three\n")
    assert metrics.lines_dropped == 3


def test_stream_made_non_blocking_by_somebody_else_loses_nothing() -> None:
    """Flags are shared with other holders of a pipe; a full one is waited for all the same."""
    reader, descriptor = os.pipe()
    os.set_blocking(descriptor, False)
    metrics = LogMetrics()
    output = StreamOutput(descriptor, metrics)
    lines = b"".join(f"{number:099}\n".encode() for number in range(5000))
    output.write(lines)
    received = b""
    while len(received) < len(lines):
        received += os.read(reader, 65536)
    output.close()
    os.close(reader)
    assert received == lines
    assert metrics.lines_dropped == 0


def test_named_pipe(tmp_path: Path) -> None:
    """A named pipe is written to by a thread; without a reader it is an error at once."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match=r"No such device or address"):
        open_output(str(path), LogMetrics())
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    output = open_output(str(path), LogMetrics())
    assert isinstance(output, StreamOutput)
    output.write(b"line\n")
    output.close()
    assert os.read(reader, 100) == b"line\n"
    os.close(reader)


def test_standard_streams_are_told_apart(capfd: pytest.CaptureFixture[str]) -> None:
    """`stdout` that was sent to a file is a file, without a thread; closing leaves it open."""
    output = open_output("stdout", LogMetrics())
    assert isinstance(output, FileOutput)
    output.write(b"to stdout\n")
    output.reopen()
    output.close()
    os.write(1, b"still open\n")
    assert capfd.readouterr().out == "to stdout\nstill open\n"


SEVERAL_WRITERS = """
import os, sys, tempfile
from gateway.observe.logs import open_output
from gateway.observe.metrics import LogMetrics

lock = tempfile.TemporaryFile()
for number in range(4):
    if not os.fork():
        output = open_output("stdout", LogMetrics(), lock.fileno())
        for turn in range(150):
            sizes = (20, 3000, 4095, 4096, 4097, 100, 20_000 if turn % 10 == 0 else 50)
            lines = "".join(f"{number}" * size + "\\n" for size in sizes)
            output.write(lines.encode())
        output.close()
        os._exit(0)
for _ in range(4):
    assert os.wait()[1] == 0
"""


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_lines_of_several_processes_stay_whole(tmp_path: Path, kind: str) -> None:
    """In a pipe even those that the kernel would tear, and in a file; and none is lost."""
    command = [sys.executable, "-c", SEVERAL_WRITERS]
    if kind == "pipe":
        written = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT).stdout
    else:
        with (tmp_path / "log").open("wb") as file:
            subprocess.run(command, stdout=file, check=True, cwd=ROOT)
        written = (tmp_path / "log").read_bytes()
    lines = written.splitlines()
    assert len(lines) == 4 * 150 * 7
    assert {len(line) for line in lines} == {20, 50, 100, 3000, 4095, 4096, 4097, 20_000}
    assert all(len(set(line)) == 1 for line in lines)
