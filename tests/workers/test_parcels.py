"""What one process packs, others unpack."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.base.errors import Problem
from gateway.workers.parcels import pack, unpack


def test_what_is_packed_once_is_unpacked_by_each() -> None:
    """Whole, however large, from descriptors that share a position; and none is left open."""
    before = set(Path("/proc/self/fd").iterdir())
    content = ({"a": (1, 2)}, Problem("f", 1, 2, "p", "m"), b"x" * 3_000_000)
    parcel = pack(content)
    copy = os.dup(parcel)
    assert unpack(parcel) == content
    assert unpack(copy) == content
    assert set(Path("/proc/self/fd").iterdir()) <= before
    assert not [name for name in Path().iterdir() if "parcel" in name.name]
