"""The sum of processes, digit by digit."""

from __future__ import annotations

from itertools import permutations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.workers.fleet import COLLECT_MOST_S, COLLECT_S, pause_s, sum_of_processes

CPU = "process_cpu_seconds_total"
START = "process_start_time_seconds"
MEMORY = "process_resident_memory_bytes"


def _own() -> list[Metric]:
    return [
        CounterMetricFamily("process_cpu_seconds", "", 0.1),
        GaugeMetricFamily(START, "", 1000.5),
        GaugeMetricFamily(MEMORY, "", 1e7),
    ]


def test_the_sum_is_the_same_in_any_order() -> None:
    """A worker that goes changes the order of what is added, and no counter by a last digit."""
    parts = [{CPU: 0.2}, {CPU: 0.3}, {CPU: 0.07}]
    sums = {
        family.samples[0].value
        for order in permutations(parts)
        for family in sum_of_processes(_own(), order)
        if family.samples[0].name == CPU
    }
    assert sums == {0.67}


def test_of_starts_the_first_counts() -> None:
    """A gateway is as old as its oldest process; memory is that of all."""
    others = [{START: 900.25, MEMORY: 2e7}, {START: 2000.0, MEMORY: 3e7}]
    values = {one.samples[0].name: one.samples[0].value for one in sum_of_processes(_own(), others)}
    assert values == {CPU: 0.1, START: 900.25, MEMORY: 6e7}


def test_reports_take_a_small_part_of_the_time() -> None:
    """A killed worker loses little, and many counters or a busy machine cost no more."""
    assert [pause_s(took) for took in (0, 0.001, 0.006)] == [COLLECT_S] * 3
    assert pause_s(0.02) == 1.0
    assert pause_s(1.0) == COLLECT_MOST_S
