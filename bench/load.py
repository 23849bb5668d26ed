"""Closed-loop load with wrk: as many requests as 64 connections can carry."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.programs import program

CONNECTIONS = 64

HEADERS = {
    "User-Agent": "sluice-bench/1",
    "Accept": "application/json",
    "Accept-Language": "en-GB,en;q=0.8",
    "Accept-Encoding": "gzip, deflate",
    "Authorization": "Bearer 3f1c9a52d0b84e6f9b7a",
}
"""What an API client sends with a request, `Host` aside."""

_CLIENTS = Path(__file__).resolve().parent / "templates" / "clients.lua"
_TOTAL = re.compile(r"(\d+) requests in ([\d.]+)(us|ms|s|m),")
_NOT_OK = re.compile(r"Non-2xx or 3xx responses: (\d+)")
_ERRORS = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Flood:
    """What came of one run of wrk.

    Attributes:
        requests: answers received.
        not_ok: those of them with a status outside 2xx and 3xx.
        errors: failed connects, reads and writes, and timeouts.
        seconds: how long it took.
    """

    requests: int
    not_ok: int
    errors: int
    seconds: float

    @property
    def ok_per_second(self) -> float:
        """Requests answered with 2xx or 3xx, a second."""
        return (self.requests - self.not_ok) / self.seconds

    @property
    def refused_per_second(self) -> float:
        """Requests answered otherwise, a second."""
        return self.not_ok / self.seconds


def flood(url: str, seconds: float, clients: int = 1) -> Flood:
    """Load the address with one wrk thread on this process's CPU.

    Args:
        url: what to GET.
        seconds: how long, at least one and in whole seconds, as wrk has it.
        clients: how many take turns, as the header `X-Client` tells; one does not tell.

    Raises:
        BenchError: wrk failed or said something that cannot be understood.
    """
    duration = max(1, round(seconds))
    argv = [program("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{duration}s"]
    for name, value in HEADERS.items():
        argv += ["-H", f"{name}: {value}"]
    words = [url]
    if clients > 1:
        argv += ["--script", str(_CLIENTS)]
        words += ["--", str(clients)]
    said = subprocess.run(
        [*argv, *words], capture_output=True, text=True, timeout=duration + 30, check=False
    )
    if said.returncode != 0:
        raise BenchError(f"wrk failed: {said.stderr.strip() or said.stdout.strip()}")
    return parse(said.stdout)


def parse(text: str) -> Flood:
    """Understand wrk's report.

    Raises:
        BenchError: it holds no total, or a total of nothing.
    """
    total = _TOTAL.search(text)
    if total is None:
        raise BenchError(f"wrk said something unexpected: {text.strip()}")
    errors = _ERRORS.search(text)
    if total[1] == "0":
        raise BenchError(f"no request was answered ({errors[0] if errors else 'no errors'})")
    not_ok = _NOT_OK.search(text)
    return Flood(
        requests=int(total[1]),
        not_ok=int(not_ok[1]) if not_ok else 0,
        errors=sum(map(int, errors.groups())) if errors else 0,
        seconds=float(total[2]) * _SECONDS[total[3]],
    )
