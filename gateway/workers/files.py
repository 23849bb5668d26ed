"""Unnamed files, shared by the processes of a gateway."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class SharedFiles(NamedTuple):
    """Descriptors of files that the supervisor keeps open for its children."""

    log_lock: int
    counters: int


@contextmanager
def shared_files() -> Iterator[SharedFiles]:
    """Create them empty; they vanish at the end."""
    if hasattr(os, "memfd_create"):
        # In memory, for read-only systems.
        files = SharedFiles(os.memfd_create("log_lock"), os.memfd_create("counters"))
        try:
            yield files
        finally:
            for descriptor in files:
                os.close(descriptor)
    else:
        with tempfile.TemporaryFile() as log_lock, tempfile.TemporaryFile() as counters:
            yield SharedFiles(log_lock.fileno(), counters.fileno())
