"""What a server and its children have used so far, and others on its CPU, read from /proc.

A server is started as the leader of a session of its own; its processes are those of that
session, however many wrappers and workers it has.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat counted from the one after the command's closing parenthesis.
_STATE, _SESSION, _USER_TIME, _SYSTEM_TIME = 0, 3, 11, 12


def members(session: int) -> list[int]:
    """Ids of the living processes of the session, its leader included."""
    return [pid for pid, stat in _stats() if int(stat[_SESSION]) == session and stat[_STATE] != "Z"]


def cpu_seconds(session: int) -> float:
    """CPU time spent by the living processes of the session, user and system together."""
    ticks = sum(
        int(stat[_USER_TIME]) + int(stat[_SYSTEM_TIME])
        for _, stat in _stats()
        if int(stat[_SESSION]) == session
    )
    return ticks / _TICKS


def cpu_seconds_of_all(cpu: int) -> float:
    """CPU time that processes of any kind have spent on one CPU, and that its host took away.

    Interrupts are left out: they belong to nobody (proc(5), stat: user, nice, system, steal).
    """
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *ticks = line.split()
        if name == f"cpu{cpu}":
            return sum(int(ticks[column]) for column in (0, 1, 2, 7)) / _TICKS
    return 0.0


def resident_bytes(session: int) -> int:
    """Resident memory of the session now; pages shared by two processes count twice."""
    return sum(_resident(pid) for pid in members(session))


def peak_resident_bytes(session: int) -> int:
    """The sum of the highest resident sizes since `reset_peaks`."""
    return sum(_status_kib(pid, "VmHWM") for pid in members(session)) * 1024


def reset_peaks(session: int) -> None:
    """Begin a new high-water mark for every process of the session (proc(5), clear_refs: 5)."""
    for pid in members(session):
        Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def _stats() -> list[tuple[int, list[str]]]:
    found: list[tuple[int, list[str]]] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            found.append((int(entry.name), text.rpartition(")")[2].split()))
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _status_kib(pid: int, field: str) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for line in text.splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0
