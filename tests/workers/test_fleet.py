"""The sum of processes, digit by digit."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gateway.workers.fleet import sum_of_processes

CPU = "process_cpu_seconds_total"
START = "process_start_time_seconds"
MEMORY = "process_resident_memory_bytes"


def _own() -> list[Metric]:
    return [
        CounterMetricFamily("process_cpu_seconds", "", 0.1),
        GaugeMetricFamily(START, "", 1000.5),
        GaugeMetricFamily(MEMORY, "", 1e7),
    ]


def test_of_starts_the_first_counts() -> None:
    """A gateway is as old as its oldest process; memory and CPU time are those of all."""
    others = [{START: 900.25, MEMORY: 2e7, CPU: 0.3}, {START: 2000.0, MEMORY: 3e7, CPU: 0.2}]
    families = sum_of_processes(_own(), others, 7.5)
    values = {one.samples[0].name: one.samples[0].value for one in families}
    assert values == {CPU: 7.5, START: 900.25, MEMORY: 6e7}
