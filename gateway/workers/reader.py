"""Reads a configuration in a process of its own, while the supervisor watches its children.

A pipe or a file system that hangs would stop the supervisor as well, and a thread in it would be in
the way of its forks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import socket
from typing import Final, NamedTuple, cast

from gateway.base.clock import US
from gateway.base.errors import GatewayError, Problem, problems_of
from gateway.config.checking.check import Checked
from gateway.wiring.reading import READ_S, not_read
from gateway.wiring.reloading import ConfigSource, read_all
from gateway.workers.child import Child, start_child
from gateway.workers.parcels import blank, fill, unpack

READ_US: Final = round(READ_S * US)
STANDARD_FILES: Final = frozenset(range(3))


class ReadConfig(NamedTuple):
    """What became of reading a configuration.

    Attributes:
        loaded: the configuration; None if it cannot be used.
        problems: why not.
        digest: of the files that were read, as in `ConfigSource`.
        certificates: the fingerprints of their files.
    """

    loaded: Checked | None
    problems: tuple[Problem, ...]
    digest: bytes
    certificates: Mapping[str, bytes]


class ConfigReader:
    """Reads a configuration again and again, each time in another process.

    Args:
        source: where it comes from.
    """

    def __init__(self, source: ConfigSource) -> None:
        self._source = source
        self._reading: _ReaderProcess | None = None
        self._killed: set[int] = set()

    @property
    def is_reading(self) -> bool:
        """Return whether a process reads."""
        return self._reading is not None

    def next_us(self) -> int | None:
        """Return when it must have ended; None if there is none."""
        return self._reading.due_us if self._reading is not None else None

    def start(self, now_us: int) -> None:
        """Begin to read.

        Raises:
            OSError: there are not enough resources.
        """
        parcel = blank("read")
        try:
            # It closes the channels of its siblings with everything else.
            child = start_child("reader", (), partial(_read, self._source, parcel), None)
        except OSError:
            os.close(parcel)
            raise
        self._reading = _ReaderProcess(child, parcel, now_us + READ_US)

    def extend(self, now_us: int) -> None:
        """Allow the whole time again: whatever stopped this process may have stopped all."""
        if self._reading is not None:
            self._reading = self._reading._replace(due_us=now_us + READ_US)

    def result(self, now_us: int) -> ReadConfig | None:
        """Return what was read; None if that is not known yet."""
        self._reap()
        if self._reading is None:
            return None
        child, parcel, due_us = self._reading
        name = self._source.name
        end = child.exit_description()
        if end is None:
            if now_us < due_us:
                return None
            self.stop()
            return _failed(not_read(name), name)
        found = _taken(parcel)
        self.close_in_child()
        return found or _failed(GatewayError(f"the process that reads it {end}"), name)

    def stop(self) -> None:
        """End the process, without waiting: one that waits for a disk may not end for long."""
        if self._reading is not None:
            self._reading.child.kill()
            self._killed.add(self._reading.child.pid)
            self.close_in_child()

    def close_in_child(self) -> None:
        """Close what belongs to the process that reads."""
        if self._reading is not None:
            self._reading.child.channel.close()
            os.close(self._reading.parcel)
            self._reading = None

    def _reap(self) -> None:
        for pid in list(self._killed):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._killed.discard(pid)


class _ReaderProcess(NamedTuple):
    """A process that reads, and where it puts what it has read."""

    child: Child
    parcel: int
    due_us: int


def _failed(error: GatewayError, name: str) -> ReadConfig:
    return ReadConfig(None, problems_of(error, name), b"", {})


def _taken(parcel: int) -> ReadConfig | None:
    """Return what is in the parcel; None if the process has ended before it was filled."""
    if not os.fstat(parcel).st_size:
        return None
    return cast("ReadConfig", unpack(os.dup(parcel)))


def _read(source: ConfigSource, parcel: int, channel: socket) -> int:
    """Read the configuration into a parcel; in the child."""
    # If it hangs longer than the gateway runs, it must not keep the gateway's addresses.
    for number in [int(one.name) for one in Path("/dev/fd").iterdir()]:
        if number not in {*STANDARD_FILES, parcel, channel.fileno()}:
            with suppress(OSError):
                os.close(number)
    try:
        loaded, certificates = read_all(source)
        found = ReadConfig(loaded, (), source.loaded, certificates)
    except GatewayError as error:
        found = _failed(error, source.name)._replace(digest=source.loaded)
    except Exception as error:  # noqa: BLE001 - the configuration in force must go on
        message = f"the gateway failed to read it: {type(error).__name__}: {error}"
        found = _failed(GatewayError(message), source.name)._replace(digest=source.loaded)
    fill(parcel, found)
    return 0
