"""Bounds how long a reload may read files: a pipe or a file system may never answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from gateway.base.errors import ConfigError, Problem
from gateway.base.threads import in_thread

READ_S: Final = 20.0
"""How long it may take to read and check a configuration; a check of ten thousand routes takes a
few seconds of CPU time.
"""
Read = TypeVar("Read")


def not_read(name: str) -> ConfigError:
    """Return the error for a configuration that is not read in time."""
    message = f"it cannot be read: no end after {READ_S:g} s"
    hint = (
        "check whether a file of it is a pipe that nothing writes to, or on a file system that "
        "does not respond"
    )
    return ConfigError([Problem(name, 0, 0, "", message, hint)])


async def read_in_time(work: Callable[[], Read], name: str) -> Read:
    """Return what blocking work has read.

    Args:
        work: reads files.
        name: of the configuration, for the message.

    Raises:
        ConfigError: it takes too long.
    """
    try:
        async with asyncio.timeout(READ_S):
            return await in_thread(work)
    except TimeoutError as error:
        raise not_read(name) from error
