"""Ledgers in a file: read while they are written, and after the death of who wrote them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from gateway.board.ledger import CHANGES, HEAD, cpu_us, entries
from gateway.board.ledger_file import CHUNK_BYTES, SEAT_BYTES, LedgerFile

SEATS = 3

WRITER = """
import sys
from itertools import count
from gateway.board.ledger_file import LedgerFile

ledger = LedgerFile(int(sys.argv[1]), 3, 0).ledger(1)
total = ledger.open(b"total", 1)
names = [b"%d" % number * (1 + number % 3) for number in range(9)]
print(flush=True)
for number in count():
    name = names[number % len(names)]
    entry = ledger.open(name, 4)
    for at in range(4):
        entry.counts[at] += len(name) + at
    ledger.hide(entry, name)
    del entry
    total.counts[0] += 1
"""
"""Counts what its name and place say, for names that come and go."""


@pytest.fixture
def file() -> Iterator[int]:
    """An empty file."""
    with tempfile.TemporaryFile() as opened:
        yield opened.fileno()


def test_each_seat_has_its_own_and_what_was_never_used_takes_no_memory(file: int) -> None:
    """The file is as large as all ledgers may become, and nearly empty."""
    ledgers = LedgerFile(file, SEATS, 5)
    assert ledgers.copies() == []
    for seat in (0, 2):
        ledgers.ledger(seat).open(b"a", 1).counts[0] += seat
    assert [dict(entries(copy)) for copy in ledgers.copies()] == [{b"a": [0]}, {b"a": [2]}]
    assert os.fstat(file).st_size == SEATS * SEAT_BYTES
    assert os.fstat(file).st_blocks * 512 < 1 << 20
    assert ledgers.started_us == 5


def test_it_grows_until_it_is_full(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are in all parts of it, and when there are no more, that is an error."""
    monkeypatch.setattr("gateway.board.ledger_file.CHUNKS", 2)
    ledger = LedgerFile(file, 1, 0).ledger(0)
    count = CHUNK_BYTES // 8 - HEAD - 8
    for number in range(2):
        ledger.open(b"%d" % number, count)
    with pytest.raises(OSError, match="full"):
        ledger.open(b"more", count)
    (copy,) = LedgerFile(file, 1, 0).copies()
    assert [name for name, _ in entries(copy)] == [b"0", b"1"]


def test_what_is_read_while_it_is_written_is_whole(file: int) -> None:
    """Names, counts and places belong together, although all change all the time."""
    ledgers = LedgerFile(file, SEATS, 0)
    last = 0
    for life in range(1, 6):
        command = [sys.executable, "-c", WRITER, str(file)]
        with subprocess.Popen(command, pass_fds=[file], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            while last < 100 * life:
                (copy,) = ledgers.copies()
                found = dict(entries(copy))
                (total,) = found.pop(b"total")
                assert total >= last
                last = total
                assert len(found) <= 1
                for name, counts in found.items():
                    assert all(count in {0, len(name) + at} for at, count in enumerate(counts)), (
                        "a count belongs to another name"
                    )
            os.kill(writer.pid, signal.SIGKILL)
        ledgers.end(1, 0)
        (copy,) = ledgers.copies()
        assert memoryview(copy).cast("Q")[CHANGES] % 2 == 0
        assert dict(entries(copy))[b"total"][0] >= last


def test_the_cpu_time_of_those_that_ended_never_decreases(file: int) -> None:
    """The system knows it better than the process did, or the process reported it first."""
    ledgers = LedgerFile(file, SEATS, 0)
    ledgers.ledger(1).used_cpu(100)
    for ended, expected in ((150, 150), (120, 150), (170, 170)):
        ledgers.end(1, ended)
        assert ledgers.cpu_us(1) == expected
        assert [cpu_us(copy) for copy in ledgers.copies()] == [expected]
