"""How many connections a library may accept by itself, and leave open files for everything else."""

from __future__ import annotations

import resource
from typing import Final

MANY_FILES: Final = 1_000_000
"""Files where there is no bound on them."""


def affordable_connections() -> int:
    """A third of all files that may be open: stores, upstreams and other listeners need some."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(files // 3, 1) if files != resource.RLIM_INFINITY else MANY_FILES
