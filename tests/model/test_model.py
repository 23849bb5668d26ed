"""Gateways as processes on real stores, while both are killed, paused, cut off and misled.

What is done is `schedule`, what must hold is `check`; `python -m tests.model` runs more seeds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.model.run import perform

RUNS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "redis": (("redis", 0), ("redis-forgetful", 1), ("redis-clock", 2)),
    "mariadb": (("mariadb", 1), ("mariadb-clock", 0)),
    "servers that fail over": (("cluster", 0), ("sentinel", 1)),
}
"""What runs at the same time: most of it waits most of the time."""
SECONDS: Final = 5.0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("together", RUNS)
def test_what_is_promised_holds_whatever_is_done(together: str, tmp_path: Path) -> None:
    """No limit is exceeded beyond what the store lost, no lease leaks, nothing waits for long."""

    def run(plan: tuple[str, int]) -> str:
        store, seed = plan
        report = perform(store, seed, tmp_path / store, SECONDS)
        assert report.loose == [], f"{report}\nwhat passed was not bounded by these limits"
        return str(report) if report.wrong else ""

    plans = RUNS[together]
    with ThreadPoolExecutor(len(plans)) as pool:
        failed = [report for report in pool.map(run, plans) if report]
    repeat = f"again: make model ARGS='--store STORE --seed SEED --seconds {SECONDS:g}'"
    assert not failed, "\n".join([*failed, repeat])
