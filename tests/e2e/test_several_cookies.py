"""Each value of a cookie is spent, whoever keeps the count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.raw import RecordingUpstream, get
from tests.processes import Gateway, free_port


def test_stores_spend_each_value(store: str, tmp_path: Path) -> None:
    """All of them or none, in whatever store."""
    with RecordingUpstream() as upstream:
        route = f"{{ upstream: {upstream.url}, limit: 1/h per cookie:sid }}"
        gateway = Gateway.start(f"{store}routes: {{ /**: {route} }}\n", tmp_path)
        answers = [
            get(gateway.port, "/", f"Cookie: {line}")
            for line in ("sid=a; sid=b", "sid=b; sid=c", "sid=c; sid=d", "sid=d", "sid=a")
        ]
        gateway.stop()
    assert [answer.status for answer in answers] == [200, 429, 200, 429, 429]


def test_workers_spend_each_value(tmp_path: Path) -> None:
    """Their limiter knows a limit that is asked about several times."""
    with RecordingUpstream() as upstream:
        route = f"{{ upstream: {upstream.url}, limit: 1/h per cookie:sid }}"
        gateway = Gateway.start(
            # A loaded machine is no reason for a worker to decide alone.
            "server: { workers: 2 }\nstore: { url: memory://, deadline: 20s }\n"
            f"routes: {{ /**: {route} }}\n",
            tmp_path,
        )
        statuses = [
            get(gateway.port, "/", f"Cookie: {line}").status
            for line in ("sid=a; sid=b; sid=c", "sid=c; sid=d", "sid=d", "sid=b; sid=e", "sid=e")
        ]
        gateway.stop()
    assert statuses == [200, 429, 200, 429, 200]


@pytest.mark.parametrize("consistency", ["leased", "eventual"])
def test_gateways_that_decide_by_themselves_spend_each_value(
    consistency: str, redis_url: str, tmp_path: Path
) -> None:
    """Whatever part of it they leave to the store."""
    with RecordingUpstream() as upstream:
        gateway = Gateway.start(
            f"store: {{ url: '{redis_url}', deadline: 20s }}\ndomain: t{free_port()}\n"
            f"routes: {{ /**: {{ upstream: {upstream.url}, policies: p }} }}\n"
            f"policies: {{ p: {{ limit: 40/h per cookie:sid, consistency: {consistency} }} }}\n",
            tmp_path,
        )
        passed = [
            get(gateway.port, "/", f"Cookie: sid=busy; sid=other{number}").status
            for number in range(40)
        ]
        statuses = [
            get(gateway.port, "/", f"Cookie: {line}").status
            for line in ("sid=new; sid=busy", "sid=busy", "sid=new")
        ]
        gateway.stop()
    assert passed == [200] * 40
    assert statuses == [429, 429, 200]


def test_places_are_held_for_each_value(tmp_path: Path) -> None:
    """A limit on what is under way counts a request with two cookies for both, until its end."""
    with RecordingUpstream() as upstream:
        gateway = Gateway.start(
            f"routes: {{ /**: {{ upstream: {upstream.url}, limit: 1 at once per cookie:sid }} }}\n",
            tmp_path,
        )
        answers = [get(gateway.port, "/", "Cookie: sid=a; sid=b").status for _ in range(3)]
        gateway.stop()
    assert answers == [200] * 3


def test_throttlex_keys_have_the_same_readers(tmp_path: Path) -> None:
    """And its answers name the key that was over."""
    numbers = "type: SLIDING_WINDOW, capacity: 1, windowSeconds: 3600"
    with RecordingUpstream() as upstream:
        gateway = Gateway.start(
            f"""
policies:
  one: {{ throttlex: {{ {numbers}, per: api_key, api_key: "cookie:key" }}, if_missing: skip }}
  two: {{ throttlex: {{ {numbers}, per: [user, route], user: "header:X-User" }}, if_missing: skip }}
routes:
  /one: {{ upstream: {upstream.url}, policies: one }}
  /two: {{ upstream: {upstream.url}, policies: two }}
""",
            tmp_path,
        )
        answers = [
            get(gateway.port, "/one", "Cookie: key=a; key=b"),
            get(gateway.port, "/one", "Cookie: key=c; key=b"),
            get(gateway.port, "/two", "X-User: u", "X-User: v"),
            get(gateway.port, "/two", "X-User: u", "X-User: u"),
        ]
        gateway.stop()
    assert [answer.status for answer in answers] == [200, 429, 400, 200]
    assert json.loads(answers[1].body)["message"] == "Rate limit exceeded for key: b"
