"""The memory of a process, as the kernel counts it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20


def reset_peak(pid: int) -> None:
    """Let `peak_mib` count from now on (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(pid: int) -> float:
    """The most memory that the process has held resident, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024
