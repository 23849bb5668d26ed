"""Routes whose requests count as several."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import get
from tests.mariadb import MariaDB
from tests.processes import free_port

CONFIG: Final = """\
store: {{ url: '{store}', deadline: 20s }}
domain: d{domain}
policies:
  shared: 10/h per all
  windows: {{ limit: 10/h per all, algorithm: sliding_window_log }}
  leased: {{ limit: 10/h per all, consistency: {consistency} }}
routes:
  /cheap: {{ respond: hello, policies: shared }}
  /dear: {{ respond: hello, policies: shared, cost: 4 }}
  /both: {{ respond: hello, policies: [shared, windows], cost: 4 }}
  /windows: {{ respond: hello, policies: windows, cost: 5 }}
  /leased: {{ respond: hello, policies: leased, cost: 4 }}
"""


@pytest.mark.parametrize("store", ["memory", "redis", "mysql"])
def test_a_request_counts_as_several(
    start_gateway: StartGateway, request: pytest.FixtureRequest, store: str
) -> None:
    """Under all limits of its route, with any algorithm; other routes share what is left."""
    url = "memory://"
    if store == "redis":
        url = request.getfixturevalue("redis_url")
    elif store == "mysql":
        mariadb: MariaDB = request.getfixturevalue("mariadb")
        url = mariadb.url
    consistency = "strict" if store == "memory" else "leased"
    gateway = start_gateway(CONFIG.format(store=url, domain=free_port(), consistency=consistency))

    def statuses(path: str, count: int) -> list[int]:
        return [get(gateway.port, path).status for _ in range(count)]

    first = get(gateway.port, "/dear")
    assert (first.status, first.field("X-RateLimit-Remaining")) == (200, "6")
    assert statuses("/dear", 2) == [200, 429]
    # Two are left, which is not enough; nothing of the other limit is spent.
    assert statuses("/both", 2) == [429, 429]
    assert statuses("/cheap", 3) == [200, 200, 429]
    assert statuses("/windows", 3) == [200, 200, 429]
    assert statuses("/leased", 3) == [200, 200, 429]
    # Two of ten are missing, which take as long as two fifths of them take to come back.
    refused = get(gateway.port, "/dear")
    assert 1300 <= int(refused.field("Retry-After")) <= 1440
