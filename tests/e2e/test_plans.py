"""`config/plans.yaml`: what a team brings along from nginx, on two gateways that share a Redis."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.raw import Answer, RawClient, RecordingUpstream, get
from tests.e2e.signs import metric
from tests.processes import Gateway, free_port

CONFIG: Final = (Path(__file__).parents[2] / "config" / "plans.yaml").read_text()
PREFLIGHT: Final = ("Origin: https://shop.example", "Access-Control-Request-Method: PUT")


@pytest.fixture
def gateways(redis_url: str, tmp_path: Path) -> Iterator[list[Gateway]]:
    """Two gateways before one upstream; this host is in the office of neither."""
    lines = CONFIG.replace("listen: ${LISTEN:-127.0.0.1:8080}\n", f"domain: d{free_port()}\n")
    # However long the requests take.
    lines = lines.replace("100/s per ip", "100/h per ip")
    with RecordingUpstream() as upstream:
        env = {"STORE": redis_url, "UPSTREAM": upstream.url}
        found = [Gateway.start(lines, tmp_path, env) for _ in range(2)]
        yield found
        for gateway in found:
            gateway.stop()


def _log_in(gateway: Gateway, name: str) -> Answer:
    body = f"user={name}&password=guess"
    with RawClient(gateway.port) as client:
        head = (
            "POST /login HTTP/1.1\r\nHost: gateway.test\r\nContent-Length: "
            f"{len(body)}\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
        )
        client.send((head + body).encode())
        return client.read()


def test_it_does_what_it_says(gateways: list[Gateway]) -> None:
    """Each limit holds over both gateways."""
    turns = cycle(gateways)

    def statuses(path: str, *fields: str, count: int, method: str = "GET") -> list[int]:
        return [get(next(turns).port, path, *fields, method=method).status for _ in range(count)]

    # A search counts as five of the twenty; two a second come back meanwhile.
    searches = statuses("/v1/search", "X-API-Key: a", count=5)
    assert searches[:4] == [200] * 4
    assert statuses("/v1/search", count=1) == [400]
    assert statuses("/v1/search", *PREFLIGHT, method="OPTIONS", count=20) == [200] * 20
    assert [_log_in(next(turns), "alice").status for _ in range(7)] == [200] * 5 + [429] * 2
    assert _log_in(next(turns), "bob").status == 200
    assert statuses("/admin/x", count=2) == [403, 403]
    # On trial: all pass, and the metrics say which would not.
    assert set(statuses("/shop", count=300)) == {200}
    refused = [
        metric(each, "sluice_decisions_total", policy="per-address", decision="shadow_refuse")
        for each in gateways
    ]
    assert sum(refused) == 200
