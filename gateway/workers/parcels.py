"""Objects that the processes of one gateway pass to each other in unnamed files.

The only place that uses pickle, because only processes of the same program, started by the same
supervisor, can write such a file and pass it on: it has no name, and their channels are pairs of
sockets. A checked configuration cannot be sent as text: to check it again takes as long as a start,
and the files that it names may have changed since.
"""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - see above
import tempfile


def pack(content: object) -> int:
    """Return a descriptor of a file with an object.

    Raises:
        OSError: no file can be opened.
    """
    descriptor = blank("parcel")
    fill(descriptor, content)
    return descriptor


def blank(name: str) -> int:
    """Return a descriptor of an empty file, which `fill` puts an object into.

    Args:
        name: of the file, as the system shows it.

    Raises:
        OSError: no file can be opened.
    """
    if hasattr(os, "memfd_create"):
        # In memory: it may contain secrets.
        descriptor = os.memfd_create(name)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    return descriptor


def fill(descriptor: int, content: object) -> None:
    """Put an object into an empty file."""
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(pickle.dumps(content))


def unpack(descriptor: int) -> object:
    """Return the object, and close the descriptor.

    Others may read the same file at the same time.
    """
    try:
        return pickle.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))  # noqa: S301
    finally:
        os.close(descriptor)
