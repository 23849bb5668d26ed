"""Long files of lines that a configuration names, and that are read again when they change."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.base.clock import pause
from gateway.base.errors import UnusableFileError
from gateway.base.regular import open_regular

INTERVAL_S: Final = 1.0
"""How often files are looked at."""
MAX_LINES: Final = 1_100_000
"""A million entries, and comments."""
MAX_BYTES: Final = 128 * 1024 * 1024
_SHORTER: Final = "join neighbouring networks, or use several lists"
_BATCH: Final = 512
"""Lines that are read between two pauses."""

Signature = tuple[int, int, int, int] | None
"""The inode, size and times of change of a file; None if it is not there."""


class FileSource(ABC):
    """What is made from a file.

    Args:
        file: the file; None if there is none.

    Attributes:
        paths: the file, if there is one.
        is_loaded: whether it was read.
    """

    def __init__(self, file: Path | None) -> None:
        self.paths: tuple[Path, ...] = () if file is None else (file,)
        self.is_loaded = False
        self._used: Signature = None
        self._seen: Signature = None

    def load(self) -> None:
        """Read it; blocks.

        Raises:
            UnusableFileError: its file cannot be used.
        """
        self._used = self._seen = self._look()
        self._read()
        self.is_loaded = True

    def renew(self) -> bool:
        """See `Renewable`. A file that still changes is not read: it may be half written."""
        found = self._look()
        is_settled = found == self._seen
        self._seen = found
        if not is_settled or found == self._used:
            return False
        self._used = found
        self._read()
        return True

    def _look(self) -> Signature:
        return signature(self.paths[0]) if self.paths else None

    @abstractmethod
    def _read(self) -> None:
        """Use the content of the file; if it raises `UnusableFileError`, nothing has changed."""


def signature(file: Path) -> Signature:
    """Return what changes when a file does."""
    with suppress(OSError):
        found = file.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    return None


def lines_of(file: Path | None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, with their numbers.

    Raises:
        UnusableFileError: it cannot be read.
    """
    if file is None:
        return
    try:
        with open_regular(file) as stream:
            if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                raise UnusableFileError(f"{file} is larger than {MAX_BYTES} bytes", _SHORTER)
            for number, line in enumerate(stream, 1):
                if number > MAX_LINES:
                    raise UnusableFileError(f"{file} has more than {MAX_LINES} lines", _SHORTER)
                if number % _BATCH == 0:
                    pause()
                text = line.decode("utf-8", "surrogateescape")
                yield number, text.removeprefix("\ufeff") if number == 1 else text
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror or error}"
        raise UnusableFileError(message) from None
