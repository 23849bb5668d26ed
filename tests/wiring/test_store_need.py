"""Readiness while the store is unavailable: not worse than the outage itself."""

from __future__ import annotations

from typing import Final

import pytest
import requests

from gateway.config.checking.check import check_text
from gateway.wiring.store_need import reason_to_need_store
from tests.conftest import StartGateway
from tests.e2e.raw import RecordingUpstream, get
from tests.processes import Gateway
from tests.servers import RedisServer
from tests.workers.family import wait_until

CLOSED: Final = "/closed: { respond: x, limit: 1/s, on_store_error: closed }"
OPEN: Final = "/open: { respond: x, limit: 1/s }"
UNLIMITED: Final = "/free: { respond: x }"
NEEDS: Final = "ready: { needs_store: true }"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([f"routes: {{ {CLOSED} }}"], "every route"),
        ([f"routes: {{ {CLOSED}, {OPEN} }}"], ""),
        ([f"routes: {{ {CLOSED}, {UNLIMITED} }}"], ""),
        ([f"routes: {{ {OPEN} }}"], ""),
        ([f"routes: {{ {CLOSED}, {UNLIMITED} }}", NEEDS], "a policy"),
        ([f"routes: {{ {OPEN} }}", NEEDS], ""),
        (["listeners: [throttr: v5]"], "every listener"),
        (["listeners: [throttr: v5]", f"routes: {{ {UNLIMITED} }}"], ""),
        (["listeners: [throttr: v5]", f"routes: {{ {UNLIMITED} }}", NEEDS], "a Throttr listener"),
        (["listeners: [throttr: v5]", f"routes: {{ {CLOSED} }}"], "every route"),
        (["listeners: [ratio: 1/s]", f"routes: {{ {CLOSED} }}"], ""),
    ],
)
def test_what_needs_the_store(lines: list[str], expected: str) -> None:
    """Only a gateway that could serve nothing at all, unless it is told otherwise."""
    text = "\n".join(["listen: 127.0.0.1:8080", "store: redis://127.0.0.1", *lines, ""])

    assert reason_to_need_store(check_text(text).config) == expected


def _is_ready(gateway: Gateway) -> bool:
    return requests.get(f"{gateway.admin_url}/readyz", timeout=10).ok


def test_one_closed_policy_does_not_take_the_other_routes_down(
    start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    """Without its store a gateway refuses what is closed, serves the rest, and says it is ready."""
    with RecordingUpstream() as upstream:
        config = (
            f"store: {{ url: '{redis_server.url}', deadline: 250ms }}\n"
            "routes:\n"
            f"  /closed: {{ upstream: '{upstream.url}', limit: 9/s, on_store_error: closed }}\n"
            f"  /**: {{ upstream: '{upstream.url}', limit: 9/s }}\n"
        )
        usual, needy = start_gateway(config), start_gateway(f"{NEEDS}\n{config}")
        assert [_is_ready(one) for one in (usual, needy)] == [True, True]
        redis_server.stop()

        wait_until(lambda: not _is_ready(needy), "it is still ready")
        assert get(usual.port, "/closed").status == 503
        assert get(usual.port, "/other").status == 200
        ready = requests.get(f"{usual.admin_url}/readyz", timeout=10)
        assert ready.ok
        reasons = ready.json()["reasons"]
        assert reasons == ["store main is unavailable; the gateway serves without it"]
