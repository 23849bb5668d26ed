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
SECONDS: Final = (5.0, 10.0, 20.0)
"""How long a run is; and how long if the one before has shown little, the machine being busy."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("together", RUNS)
def test_what_is_promised_holds_whatever_is_done(together: str, tmp_path: Path) -> None:
    """No limit is exceeded beyond what the store lost, no lease leaks, nothing waits for long."""

    def run(plan: tuple[str, int]) -> str:
        store, seed = plan
        shown = ""
        for number, seconds in enumerate(SECONDS):
            report = perform(store, seed, tmp_path / f"{store}-{number}", seconds)
            if report.wrong:
                return f"{report}\nafter {seconds:g} seconds"
            if not report.loose:
                return ""
            shown = f"{report}\nwhat passed was not bounded by {', '.join(report.loose)}"
        return shown

    plans = RUNS[together]
    with ThreadPoolExecutor(len(plans)) as pool:
        failed = [report for report in pool.map(run, plans) if report]
    repeat = "again: make model ARGS='--store STORE --seed SEED' SECONDS=..."
    assert not failed, "\n".join([*failed, repeat])
