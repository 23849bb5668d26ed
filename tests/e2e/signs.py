"""What a gateway says about itself: its metrics, and its log lines."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.processes import Gateway

PATIENCE_S: Final = 30.0


def metric(gateway: Gateway, name: str, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    text = requests.get(f"{gateway.admin_url}/metrics", timeout=20).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def wait_for_metric(gateway: Gateway, name: str, value: float, **labels: str) -> bool:
    """Whether the metric takes this value before patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while metric(gateway, name, **labels) != value:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def log_lines(gateway: Gateway) -> list[dict[str, Any]]:
    """All JSON lines of the log so far; ValueError if one is none."""
    return [json.loads(line) for line in gateway.server.lines]


def request_lines(gateway: Gateway, count: int) -> list[dict[str, Any]]:
    """The log lines of requests, once there are this many."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = [line for line in log_lines(gateway) if "status" in line]
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.02)
