"""What richer policies cost: five keys with tiers and two limits, and a long deny-list."""

from __future__ import annotations

from collections.abc import Iterator

from bench.results import Goal, Result, ratio
from bench.rivals.base import WITHIN
from bench.rivals.sluice import DENYING, FIVE_KEYS, SLUICE
from bench.scenarios.base import Plan
from bench.scenarios.throughput import measure
from bench.stage import Stage

RIVALS = (SLUICE, FIVE_KEYS, DENYING)


def run(plan: Plan, stage: Stage) -> Iterator[Result]:
    """Flood Sluice with a plain policy, with a rich one, and with a million networks denied."""
    title = "Richer policies, every request within its limits"
    result, medians = measure(title, RIVALS, WITHIN, lambda f: f.ok_per_second, plan, stage)
    plain = medians.get(SLUICE.name)
    for rival, text, bound in (
        (FIVE_KEYS, "five keys, tiers and two limits / one key and one limit", 0.8),
        (DENYING, "a deny-list of a million networks / none", 0.95),
    ):
        result.goals.append(Goal(text, ratio(medians.get(rival.name), plain), bound))
    yield result
