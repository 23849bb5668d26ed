"""SIGTERM at every moment of the first second of a start."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from typing import Final

from bench.chaos.subject import Case, Finding, Subject
from tests.processes import PYTHON_PATH

STEP_S: Final = 0.02
LAST_S: Final = 1.0


async def starts(case: Case) -> list[Finding]:
    """Start and end a gateway fifty times."""
    if not case.is_memory:
        # A start waits for its store for no longer than a quarter of a second.
        return []
    subject = Subject(case)
    socket = case.folder / "clients.sock"
    subject.write("routes:\n  /**: { respond: { status: 200 } }\n", f", 'unix:{socket}'")
    statuses: Counter[int] = Counter()
    longest_s, sockets, left, said = 0.0, 0, 0, 0
    for step in range(round(LAST_S / STEP_S)):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway",
            "run",
            str(subject.file),
            env={**os.environ, "PYTHONPATH": PYTHON_PATH},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        await asyncio.sleep(step * STEP_S)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 30)
        longest_s = max(longest_s, time.monotonic() - began)
        statuses[process.returncode or 0] += 1
        sockets += socket.exists()
        said += bool(errors)
        try:
            os.killpg(process.pid, signal.SIGKILL)
            left += 1
        except ProcessLookupError:
            pass
    in_order = set(statuses) <= {0, -signal.SIGTERM}
    return [
        Finding("status: how often", str(dict(statuses)), "0, or -15 before the program", in_order),
        Finding("processes, socket files left", f"{left}, {sockets}", "0, 0", not left + sockets),
        Finding("starts that wrote to stderr", str(said), "0", not said),
        Finding("slowest end", f"{longest_s:.2f} s", "2 s", longest_s < 2),
    ]
