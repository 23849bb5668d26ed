"""Which CPU does what, and what the machine is, told without names or paths."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Cpus:
    """The two CPUs of a run.

    Attributes:
        proxy: where the proxy under test runs, alone.
        load: where load generator, upstream and Redis run.
    """

    proxy: int
    load: int

    @property
    def is_shared(self) -> bool:
        """True on a machine with one CPU: the figures then say little, and the report says so."""
        return self.proxy == self.load


def choose_cpus() -> Cpus:
    """The first CPU this process may use for the proxy, the last one for everything else."""
    allowed = sorted(os.sched_getaffinity(0))
    return Cpus(proxy=allowed[0], load=allowed[-1])


def pin_self(cpu: int) -> None:
    """Keep this process, and so whatever it starts, on one CPU."""
    os.sched_setaffinity(0, {cpu})


def pinned(cpu: int, argv: list[str]) -> list[str]:
    """The same command, held to one CPU from its first instruction."""
    return ["taskset", "--cpu-list", str(cpu), *argv]


def describe(cpus: Cpus) -> list[str]:
    """Lines for the head of a report: processor, memory, kernel, who runs where."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    placement = f"proxy on CPU {cpus.proxy}; load generator, upstream and Redis on CPU {cpus.load}"
    if cpus.is_shared:
        placement = "one CPU for everything: not a fair measure of any proxy"
    elif _share_a_core(cpus):
        placement += " (two threads of one core)"
    hardware = (
        f"{os.cpu_count()} x {_processor()}, {memory / _GIB:.0f} GiB of memory, "
        f"{platform.system()} {kernel}, {platform.machine()}"
    )
    return [
        hardware,
        placement,
        f"load average of the minute before the run: {os.getloadavg()[0]:.2f}",
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "unknown processor"


def _share_a_core(cpus: Cpus) -> bool:
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpus.proxy}/topology/thread_siblings_list")
    if not siblings.exists():
        return False
    return str(cpus.load) in siblings.read_text(encoding="ascii").replace("-", ",").split(",")
