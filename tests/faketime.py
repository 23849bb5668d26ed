"""Processes of the tests whose wall clock is wrong, or is set while they run.

Their monotonic clock stays the machine's, as it does when somebody sets a real clock.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.programs import path_of

LIBRARY: Final = "faketime/libfaketimeMT.so.1"
FOLDERS: Final = (Path("/usr/lib"), Path("/usr/local/lib"), Path("/usr/lib64"))


def _preload() -> str:
    """Debian's `libfaketime`, and before all other libraries the usual `malloc`.

    That of jemalloc, which Redis is linked with, looks at the clock before libfaketime is ready.
    """
    for folder in FOLDERS:
        for found in (folder / LIBRARY, *folder.glob(f"*/{LIBRARY}")):
            if found.exists():
                return f"{found} libc.so.6"
    raise FileNotFoundError("libfaketime is not installed")


def wrong_clock(words: str) -> dict[str, str]:
    """The environment of a process whose clock is off, such as by `+30s`, or fast: `+0 x1.05`."""
    return {"LD_PRELOAD": _preload(), "FAKETIME": words, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def redis_command() -> str:
    """A Redis whose clock may be wrong; empty for the one that is installed.

    Debian's is linked with jemalloc, which looks at the clock before libfaketime is ready, and for
    ever waits for it. Up to Redis 7 the usual `malloc` may take its place; Redis 8 calls functions
    that only jemalloc has.
    """
    return str(path) if (path := path_of("redis-8")).is_file() else ""


class SetClock:
    """A clock that is set while a process runs.

    Args:
        file: where the process reads how far it is off; made now.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset_s = 0
        self._write()

    @property
    def env(self) -> dict[str, str]:
        """The environment of the process."""
        return {
            "LD_PRELOAD": _preload(),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, seconds: int) -> None:
        """Set it forward, or back if negative, at once."""
        self._offset_s += seconds
        self._write()

    def _write(self) -> None:
        # It is read at every look at the clock: never half of it.
        new = self._file.with_suffix(".new")
        new.write_text(f"{self._offset_s:+d}s\n")
        new.replace(self._file)
