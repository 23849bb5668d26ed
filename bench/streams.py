"""Closed-loop load over HTTP/2 with h2load, nghttp2's load generator."""

from __future__ import annotations

import re
import subprocess
from functools import partial

from bench.errors import BenchError
from bench.load import HEADERS, Flood
from bench.programs import program

_FINISHED = re.compile(r"finished in ([\d.]+)(us|ms|s|m|h),")
_REQUESTS = re.compile(r"(\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout")
_STATUSES = re.compile(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def streams(connections: int, each: int, url: str, seconds: float) -> Flood:
    """Load the address.

    Args:
        connections: how many.
        each: how many requests at a time on each of them.
        url: what to GET.
        seconds: how long, at least one and in whole seconds.

    Raises:
        BenchError: h2load failed or said something that cannot be understood.
    """
    duration = max(1, round(seconds))
    argv = [program("h2load"), f"-c{connections}", f"-m{each}", f"-D{duration}"]
    for name, value in HEADERS.items():
        argv += ["-H", f"{name}: {value}"]
    said = subprocess.run(
        [*argv, url], capture_output=True, text=True, timeout=duration + 30, check=False
    )
    if said.returncode != 0:
        raise BenchError(f"h2load failed: {said.stderr.strip() or said.stdout.strip()}")
    return parse(said.stdout, duration)


def parse(text: str, seconds: float) -> Flood:
    """Understand h2load's report of a run of so many seconds.

    Raises:
        BenchError: it holds no total, or a total of nothing.
    """
    finished, requests = _FINISHED.search(text), _REQUESTS.search(text)
    statuses = _STATUSES.search(text)
    if finished is None or requests is None or statuses is None:
        raise BenchError(f"h2load said something unexpected: {text.strip()}")
    counts = [int(count) for count in statuses.groups()]
    if not sum(counts):
        raise BenchError(f"no request was answered ({requests[0]})")
    took = max(float(finished[1]) * _SECONDS[finished[2]], seconds)
    return Flood(
        requests=sum(counts),
        not_ok=counts[2] + counts[3],
        # Those that are on their way when the time is over are not errors.
        errors=int(requests[3]) + int(requests[4]),
        seconds=took,
    )


ONE_EACH = partial(streams, 64, 1)
TEN_EACH = partial(streams, 16, 10)
