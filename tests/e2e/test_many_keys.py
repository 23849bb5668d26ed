"""More keys than the memory store has room for: nobody is freed, and no other policy suffers."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import pytest
import requests

from tests.conftest import StartGateway
from tests.e2e.signs import log_lines, metric
from tests.processes import Gateway
from tests.upstreams import Upstream

ROOM = 100
CONFIG = """
server: {{ workers: {workers} }}
store: {{ url: 'memory://?max_keys={room}', deadline: 10s }}
log: {{ access: off, format: json }}
policies:
  login: {{ limit: 5/day per header:X-Key }}
  trial: {{ limit: 1/day per header:X-Key }}
  api: {{ limit: 20/h burst 20 per header:X-Key }}
routes:
  /login: {{ upstream: {url}, policies: [login] }}
  /trial: {{ upstream: {url}, policies: [trial] }}
  /**: {{ upstream: {url}, policies: [api] }}
"""


def _ask(gateway: Gateway, path: str, keys: Iterable[str]) -> list[bool]:
    """Which requests with these keys are let through, asked one after the other."""
    passed = []
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as client:
        stream = client.makefile("rb")
        for key in keys:
            head = f"GET {path} HTTP/1.1\r\nHost: a.test\r\nX-Key: {key}\r\n\r\n"
            client.sendall(head.encode())
            line = stream.readline()
            length = 0
            while (field := stream.readline()) not in {b"\r\n", b""}:
                name, _, value = field.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            stream.read(length)
            assert line, "the connection was closed"
            passed.append(b" 429 " not in line)
    return passed


@pytest.mark.parametrize("workers", [1, 2])
def test_other_keys_do_not_free_one_that_has_used_nearly_all(
    start_gateway: StartGateway, nginx_upstream: Upstream, workers: int
) -> None:
    """Of 5/day four are used; after six floods of other keys it is five, and no more."""
    config = CONFIG.format(url=nginx_upstream.url, room=ROOM, workers=workers)
    gateway = start_gateway(config)
    passed = 0
    for _ in range(6):
        passed += sum(_ask(gateway, "/login", ["k"] * 4))
        _ask(gateway, "/login", [f"other-{number}" for number in range(240)])
    assert passed == 5
    assert metric(gateway, "sluice_memory_evicted_keys_total", policy="login") > 0
    assert metric(gateway, "sluice_memory_keys", policy="login") <= ROOM
    assert metric(gateway, "sluice_memory_keys", policy="api") == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_spent_keys_of_one_policy_do_not_refuse_the_users_of_another(
    start_gateway: StartGateway, nginx_upstream: Upstream, workers: int
) -> None:
    """All of them pass, the spent stay spent, and the operator is told how and what would do."""
    config = CONFIG.format(url=nginx_upstream.url, room=ROOM, workers=workers)
    gateway = start_gateway(config)
    assert requests.get(f"{gateway.admin_url}/readyz", timeout=20).json()["reasons"] == []
    spent = [f"spent-{number}" for number in range(2 * ROOM)]
    assert all(_ask(gateway, "/trial", spent))
    assert all(_ask(gateway, "/", [f"user-{number}" for number in range(400)]))
    assert not any(_ask(gateway, "/trial", spent))

    ready = requests.get(f"{gateway.admin_url}/readyz", timeout=20)
    assert ready.status_code == 200
    assert any(f"max_keys={ROOM}" in reason for reason in ready.json()["reasons"])
    told = [line["message"] for line in log_lines(gateway) if "max_keys" in line.get("message", "")]
    # By chance some of the 400 fall together with others, of which a second line tells.
    assert ["make room" in line for line in told] in ([True], [True, False])
    assert "policy trial" in told[0]
    assert f"memory://?max_keys={4 * ROOM}" in told[0]
    assert metric(gateway, "sluice_memory_overflowed_requests_total", policy="trial") > 0
    # Of the spent keys, which are refused anyway, some may fall together by chance.
    assert metric(gateway, "sluice_memory_refused_requests_total", policy="api") == 0
