"""How many workers a machine can use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

CGROUPS: Final = Path("/sys/fs/cgroup")


def worker_count(workers: Literal["auto"] | int) -> int:
    """Return the number of workers that the configuration asks for."""
    return usable_cpus() if workers == "auto" else workers


def usable_cpus(cgroups: Path = CGROUPS) -> int:
    """Return how many CPUs this process may use: its affinity, or its container's share.

    Args:
        cgroups: where the system shows the limits of containers.
    """
    is_bound = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if is_bound else os.cpu_count() or 1
    return max(1, min(cpus, _quota(cgroups) or cpus))


def _quota(cgroups: Path) -> int | None:
    """Return the CPUs that a container may use, rounded up; None if it is not limited."""
    quota, period = "", ""
    words = _words(cgroups / "cpu.max")
    if len(words) == 2:
        quota, period = words
    else:
        first = _words(cgroups / "cpu" / "cpu.cfs_quota_us")
        second = _words(cgroups / "cpu" / "cpu.cfs_period_us")
        if len(first) == len(second) == 1:
            quota, period = first[0], second[0]
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return None
    return max(1, -(-int(quota) // int(period)))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
