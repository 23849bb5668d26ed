"""Policies that are tried out: they count, and act for nobody or for a share of the keys."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from gateway.library import Limiter
from gateway.limiter.trial import is_enforced
from gateway.limits.consistency_mode import PARTS_PER_WHOLE
from tests.conftest import StartGateway
from tests.e2e.raw import RecordingUpstream, get
from tests.e2e.signs import metric, request_lines
from tests.processes import Gateway, free_port

CONFIG: Final = """\
store: {{ url: '{store}', deadline: 20s }}
domain: d{domain}
upstreams: {{ web: '{url}' }}
routes:
  /shadow: {{ upstream: web, policies: [shadow] }}
  /beside: {{ upstream: web, policies: [real, shadow-too] }}
  /candidate: {{ upstream: web, policies: [changing] }}
  /share: {{ upstream: web, policies: [share] }}
policies:
  shadow:
    limit: 2/h per header:X-Key
    mode: shadow
    if_missing: reject
    queue: {{ max: 1, max_wait: 1h }}
  real: {{ limit: 3/h per all }}
  shadow-too: {{ limit: 1/h per all, mode: shadow, on_store_error: closed }}
  changing: {{ limit: 3/h per all, candidate: {{ limit: 2/h per all, algorithm: fixed_window }} }}
  share: {{ limit: 1/h per header:X-Key, mode: 30% }}
"""


@pytest.fixture(params=["memory", "redis"])
def gateway(
    request: pytest.FixtureRequest, start_gateway: StartGateway, upstream: RecordingUpstream
) -> Gateway:
    """A gateway whose policies are tried out, on a store in it and on one outside."""
    store = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    return start_gateway(CONFIG.format(store=store, domain=free_port(), url=upstream.url))


@pytest.fixture
def upstream() -> Any:
    """What requests are forwarded to."""
    with RecordingUpstream() as server:
        yield server


def _decisions(gateway: Gateway, policy: str) -> dict[str, float]:
    names = ("pass", "refuse", "delay", "shadow_pass", "shadow_delay", "shadow_refuse")
    found = {
        name: metric(gateway, "sluice_decisions_total", policy=policy, decision=name)
        for name in names
    }
    return {name: value for name, value in found.items() if value}


def _shadows(gateway: Gateway, count: int) -> list[str]:
    return [line.get("shadow", "") for line in request_lines(gateway, count)]


def test_a_policy_in_shadow_mode_acts_for_nobody(gateway: Gateway) -> None:
    """It says in metrics and in the log what it would have done, and nowhere else."""
    answers = [get(gateway.port, "/shadow", "X-Key: a") for _ in range(4)]
    missing = get(gateway.port, "/shadow")

    assert [answer.status for answer in [*answers, missing]] == [200] * 5
    for answer in answers:
        assert not [name for name, _ in answer.fields if "ratelimit" in name.lower()]
    expected = {"shadow_pass": 2, "shadow_delay": 1, "shadow_refuse": 1}
    assert _decisions(gateway, "shadow") == expected
    told = ["shadow=pass", "shadow=pass", "shadow=delay", "shadow=refuse", ""]
    assert _shadows(gateway, 5) == told


def test_it_changes_nothing_for_those_that_are_enforced(gateway: Gateway) -> None:
    """A request counts under each of them for itself; only what is enforced is in the response."""
    answers = [get(gateway.port, "/beside") for _ in range(4)]

    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    for answer in answers:
        assert "shadow-too" not in answer.field("RateLimit-Policy")
    assert _decisions(gateway, "real") == {"pass": 3, "refuse": 1}
    assert _decisions(gateway, "shadow-too") == {"shadow_pass": 1, "shadow_refuse": 3}


def test_a_candidate_is_tried_beside_the_limits_in_force(gateway: Gateway) -> None:
    """It has counts of its own."""
    assert [get(gateway.port, "/candidate").status for _ in range(4)] == [200, 200, 200, 429]
    assert _decisions(gateway, "changing") == {"pass": 3, "refuse": 1}
    expected = {"shadow_pass": 2, "shadow_refuse": 2}
    assert _decisions(gateway, "changing~candidate") == expected


def test_a_share_of_the_keys_is_held_to_the_limit(gateway: Gateway) -> None:
    """Always the same keys; the others only count."""
    keys = [f"key-{number}" for number in range(30)]
    parts = PARTS_PER_WHOLE * 30 // 100
    held = {key for key in keys if is_enforced("share", f"header:x-key={key}", parts)}
    assert 0 < len(held) < len(keys)

    def twice(key: str) -> list[int]:
        return [get(gateway.port, "/share", f"X-Key: {key}").status for _ in range(2)]

    found = {key: twice(key) for key in keys}

    assert {key for key, told in found.items() if told == [200, 429]} == held
    assert {key for key, told in found.items() if told == [200, 200]} == {*keys} - held
    counts = Counter(_decisions(gateway, "share"))
    free = len(keys) - len(held)
    assert counts == {
        "pass": len(held),
        "refuse": len(held),
        "shadow_pass": free,
        "shadow_refuse": free,
    }


async def test_a_library_tries_out_as_a_gateway_does() -> None:
    """A limiter with the file of a gateway refuses nothing that is not enforced there."""
    text = """
policies:
  shadow: { limit: 1/h, mode: shadow }
  changing: { limit: 2/h, candidate: 1/h }
"""
    async with Limiter.from_yaml(text) as limiter:
        assert [bool(await limiter.acquire("a", policy="shadow")) for _ in range(3)] == [True] * 3
        changing = [bool(await limiter.acquire("a", policy="changing")) for _ in range(3)]
        assert changing == [True, True, False]
        metrics = limiter.metrics.policies
        assert metrics["shadow"].shadow_refused == 2
        assert metrics["changing~candidate"].shadow_refused == 2
