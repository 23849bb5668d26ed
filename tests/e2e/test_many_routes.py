"""A gateway of thousands of routes, as those see it who look at its metrics."""

from __future__ import annotations

import pytest
import requests

from tests.conftest import StartGateway
from tests.e2e.signs import metric
from tests.upstreams import Upstream

ROUTES = 3_000


@pytest.mark.parametrize("workers", [1, 2])
def test_only_routes_that_were_asked_for_have_series(
    start_gateway: StartGateway, nginx_upstream: Upstream, workers: int
) -> None:
    """A scrape of thousands of routes is small; what is counted is there, over all workers."""
    routes = "".join(
        f"  /v1/customers/{number}/**: {{ upstream: web, policies: [api] }}\n"
        for number in range(ROUTES)
    )
    gateway = start_gateway(
        f"server: {{ workers: {workers} }}\nlog: {{ access: off }}\n"
        "policies: { api: { limit: 1000/s per ip } }\n"
        f"upstreams: {{ web: {{ targets: '{nginx_upstream.url}' }} }}\nroutes:\n{routes}"
    )
    before = requests.get(f"{gateway.admin_url}/metrics", timeout=60)
    assert len(before.content) < 20_000
    assert 'sluice_decisions_total{decision="refuse",policy="api"} 0.0' in before.text
    for _ in range(4):
        # A connection each, so that several workers are asked.
        requests.get(f"{gateway.url}/v1/customers/7/bills", timeout=30)
    text = requests.get(f"{gateway.admin_url}/metrics", timeout=60).text
    assert text.count("sluice_request_duration_seconds_count") == 1
    assert metric(gateway, "sluice_request_duration_seconds_count") == 4
    assert metric(gateway, "sluice_decisions_total", policy="api", decision="pass") == 4
    head = requests.head(f"{gateway.admin_url}/metrics", timeout=60)
    assert head.content == b""
    assert int(head.headers["Content-Length"]) > 1_000
