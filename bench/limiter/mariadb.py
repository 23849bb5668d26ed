"""A MariaDB server with default durability, on the load's CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.errors import BenchError
from bench.stage import Stage
from tests.mariadb import MariaDB


@contextmanager
def mariadb(stage: Stage, *options: str) -> Iterator[MariaDB]:
    """Start one with these words on its command line, and stop it.

    Raises:
        BenchError: it is not installed, or does not start.
    """
    try:
        server = MariaDB(stage.new_directory("mariadb"), options)
        server.start()
    except (AssertionError, OSError) as error:
        raise BenchError(f"MariaDB does not start: {error}") from error
    try:
        yield server
    finally:
        server.stop()
