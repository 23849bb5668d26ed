"""Files without a name, for processes that are made by one another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class SharedFiles(NamedTuple):
    """Descriptors of files that the supervisor holds open for its children.

    Attributes:
        log_lock: as in `gateway.observe.logs.open_output`.
        past: as in `gateway.workers.retired_counters`.
    """

    log_lock: int
    past: int


@contextmanager
def shared_files() -> Iterator[SharedFiles]:
    """Empty ones, gone at the end."""
    if hasattr(os, "memfd_create"):
        # In memory, for systems on which nothing may be written.
        files = SharedFiles(os.memfd_create("log_lock"), os.memfd_create("past"))
        try:
            yield files
        finally:
            for descriptor in files:
                os.close(descriptor)
    else:
        with tempfile.TemporaryFile() as log_lock, tempfile.TemporaryFile() as past:
            yield SharedFiles(log_lock.fileno(), past.fileno())
