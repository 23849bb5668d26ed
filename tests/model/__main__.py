"""The model check, for as many seeds as wished.

    python -m tests.model [--store redis] [--seed 7] [--seeds 20] [--seconds 8] [--jobs 2]

Runs seed after seed of each kind of store and tells of each how it went; status 1 if a promise was
not kept in one of them. A seed repeats the schedule; which process is where in what it does when
it is struck is the machine's choice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.model.run import Report, perform
from tests.model.schedule import STORES


def main() -> int:
    """Run what the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--store", choices=STORES, action="append", help="only this kind")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--seconds", type=float, default=8, help="how long faults are begun for")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs at the same time")
    words = parser.parse_args()
    plans = [
        (store, seed)
        for seed in range(words.seed, words.seed + words.seeds)
        for store in words.store or STORES
    ]
    with tempfile.TemporaryDirectory(prefix="sluice-model-") as folder:

        def one(plan: tuple[str, int]) -> Report:
            store, seed = plan
            return perform(store, seed, Path(folder) / f"{store}-{seed}", words.seconds)

        failed = 0
        with ThreadPoolExecutor(words.jobs) as pool:
            for report in pool.map(one, plans):
                sys.stdout.write(f"{report}\n")
                sys.stdout.flush()
                failed += bool(report.wrong)
    sys.stdout.write(f"{len(plans)} runs, {failed} of them failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
