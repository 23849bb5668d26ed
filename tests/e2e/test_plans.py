"""`config/plans.yaml`: what a team brings along from nginx, on two gateways that share a Redis.

One that is alone, and one behind Sentinels, which fails over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.raw import Answer, RawClient, RecordingUpstream, get
from tests.e2e.signs import metric
from tests.processes import Gateway, free_port
from tests.servers import SentinelServers, replicated, run, until
from tests.workers.family import wait_until

CONFIG: Final = (Path(__file__).parents[2] / "config" / "plans.yaml").read_text()
PREFLIGHT: Final = ("Origin: https://shop.example", "Access-Control-Request-Method: PUT")


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[SentinelServers]:
    """A primary, its replica and three Sentinels."""
    servers = SentinelServers(tmp_path / "sentinels")
    servers.start()
    yield servers
    servers.stop()


@pytest.fixture(params=["redis", "sentinel"])
def gateways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Gateway]]:
    """Two gateways before one upstream; this host is in the office of neither."""
    if request.param == "redis":
        url: str = request.getfixturevalue("redis_url")
    else:
        url = request.getfixturevalue("sentinels").url
    with _running(url, tmp_path) as found:
        yield found


@contextmanager
def _running(store: str, folder: Path) -> Iterator[list[Gateway]]:
    lines = CONFIG.replace("listen: ${LISTEN:-127.0.0.1:8080}\n", f"domain: d{free_port()}\n")
    # However long the requests, and a busy store, take.
    lines = lines.replace("100/s per ip", "100/h per ip").replace("5/m per ip", "5/h per ip")
    lines = lines.replace("${STORE:-memory://}", '{ url: "${STORE}", deadline: 2s }')
    with RecordingUpstream() as upstream, ExitStack() as stack:
        found: list[Gateway] = []
        for _ in range(2):
            env = {"STORE": store, "UPSTREAM": upstream.url}
            found.append(Gateway.start(lines, folder, env))
            stack.callback(found[-1].stop)
        yield found


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


def test_a_failover_forgets_nobody(sentinels: SentinelServers, tmp_path: Path) -> None:
    """What the replica has heard of counts on; meanwhile, each gateway admits its share."""
    with _running(sentinels.url, tmp_path) as gateways:
        turns = cycle(gateways)
        assert [_log_in(next(turns), "alice").status for _ in range(3)] == [200] * 3
        asyncio.run(replicated(sentinels.primary, sentinels.replica))
        sentinels.primary.kill()
        found = {get(each.port, "/v1/pay", "X-API-Key: b").status for each in gateways * 5}
        assert found <= {200, 429}
        asyncio.run(until(lambda: sentinels.primary_port() == sentinels.replica.port, 30))
        for number, each in enumerate(gateways):
            wait_until(
                partial(_decides_on, each, sentinels, f"probe-{number}"),
                "a gateway did not find the new primary",
            )
        assert [_log_in(next(turns), "alice").status for _ in range(4)] == [200] * 2 + [429] * 2
        assert _log_in(next(turns), "bob").status == 200


def _decides_on(gateway: Gateway, sentinels: SentinelServers, name: str) -> bool:
    """Ask for a key of this name; whether the former replica knows it."""
    assert get(gateway.port, "/v1/pay", f"X-API-Key: {name}").status in {200, 429}
    return bool(run(sentinels.replica, "KEYS", f"*{name}*"))
