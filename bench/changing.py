"""`python -m bench.changing [PART ...]`: a gateway under load while everything about it changes.

Parts: `reloads`, `kills`, `starts`, `leases`, `drain`, `busy`; all of them without a name. Each
part runs with one process and with two workers, on the memory store and on Redis, where that makes
sense. `--seconds` is how long processes are killed, and gateways are flooded; `--seed` repeats the
order of kills. Prints a table of what happened and what was promised; exits with 1 if a promise was
broken.

The parts themselves are in `bench.chaos`. Short forms that are sure to come out the same are tests:
`tests/workers`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from bench import report
from bench.chaos.busy import busy
from bench.chaos.drain import drain
from bench.chaos.kills import kills
from bench.chaos.leases import leases
from bench.chaos.reloads import reloads
from bench.chaos.starts import starts
from bench.chaos.subject import Case, Finding
from bench.results import Result
from tests.servers import RedisServer

Part = Callable[[Case], Awaitable[list[Finding]]]
PARTS: Final[Mapping[str, Part]] = {
    "reloads": reloads,
    "kills": kills,
    "starts": starts,
    "leases": leases,
    "drain": drain,
    "busy": busy,
}
HEADER: Final = ["part", "workers", "store", "what", "found", "promised", "kept"]


async def _run(names: list[str], seconds: float, seed: int) -> Result:
    rows: list[list[str]] = []
    broken: list[str] = []
    for name in names:
        for workers in (1, 2):
            for store in ("memory", "redis"):
                with tempfile.TemporaryDirectory(prefix="sluice-changing-") as place:
                    folder = Path(place)
                    server = RedisServer(folder / "redis")
                    if store == "redis":
                        await asyncio.to_thread(server.start)
                    url = server.url if store == "redis" else "memory://"
                    case = Case(folder, workers, url, seconds, seed)
                    try:
                        findings = await PARTS[name](case)
                    finally:
                        await asyncio.to_thread(server.stop)
                for one in findings:
                    kept = "yes" if one.is_kept else "NO"
                    row = [name, str(workers), store, one.what, one.found, one.promised, kept]
                    rows.append(row)
                    print("  ".join(row), file=sys.stderr, flush=True)
                    if not one.is_kept:
                        broken.append(f"{name}, {workers} workers, {store}: {one.what}")
    return Result("Changing under load", HEADER, rows, broken=broken)


def main(argv: list[str]) -> int:
    """Run the parts that were named, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench.changing", description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    result = asyncio.run(_run(options.part or list(PARTS), options.seconds, options.seed))
    print(report.text(result))
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
