"""`secret: true`: what clients are counted by is nowhere to be read."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import requests

from gateway import Limiter
from tests.conftest import StartGateway
from tests.e2e.raw import RecordingUpstream, get
from tests.e2e.signs import request_lines
from tests.e2e.test_explain import explained
from tests.mariadb import MariaDB
from tests.processes import free_port

SECRET = "b1946ac92492d2347c6235b4d2611184"
CONFIG = """
store: {{ url: '{store}', deadline: 20s }}
domain: {domain}
key_secret: {secret}
policies:
  key: {{ limit: 2/h per header:X-API-Key, secret: true, if_missing: reject }}
  query: {{ limit: 2/h per query:token, secret: true }}
  user: {{ limit: 2/h per path:id, secret: true, candidate: 1/h per path:id }}
  plain: {{ limit: 9/h per header:X-Plain }}
  all: {{ limit: 9/h per all, secret: true }}
  lex: {{ throttlex: {{ capacity: 1, per: api_key }}, secret: true }}
routes:
  /key: {{ upstream: {url}, policies: [key, plain, all] }}
  /query: {{ upstream: {url}, policies: query }}
  /users/{{id}}/**: {{ upstream: {url}, policies: user }}
  /lex: {{ upstream: {url}, policies: lex }}
"""


def hash_of(key: str) -> str:
    """What stands for a key, as an operator would calculate it."""
    return f"hmac:{hmac.digest(SECRET.encode(), key.encode(), hashlib.sha256).hex()[:32]}"


@pytest.fixture
def upstream() -> Iterator[RecordingUpstream]:
    """What all routes lead to."""
    with RecordingUpstream() as recording:
        yield recording


def test_keys_are_in_no_store_log_metric_or_answer(
    redis_url: str, start_gateway: StartGateway, upstream: RecordingUpstream, tmp_path: Path
) -> None:
    """Two gateways and a program with one secret share the counts, which show only hashes."""
    domain = f"d{free_port()}"
    text = CONFIG.format(store=redis_url, domain=domain, secret=SECRET, url=upstream.url)
    one, other = start_gateway(text), start_gateway(text)

    fields = ("X-API-Key: hunter2", "X-Plain: visible")
    found = [get(gateway.port, "/key", *fields).status for gateway in (one, other, one)]
    assert found == [200, 200, 429]
    assert [get(one.port, "/query?token=hunter2&a=b").status for _ in range(3)] == [200, 200, 429]
    assert [get(one.port, f"/users/hunter2/{n}").status for n in range(3)] == [200, 200, 429]
    assert get(one.port, "/lex", "X-API-Key: hunter2").status == 200
    refused = get(other.port, "/lex", "X-API-Key: hunter2")
    assert refused.status == 429
    assert hash_of("hunter2") in refused.body.decode()

    with redis.Redis.from_url(redis_url) as client:
        keys = [key.decode() for key in client.scan_iter(count=1000) if domain.encode() in key]
    shown = "\n".join(keys)
    for key in ("header:x-api-key=hunter2", "query:token=hunter2", "path:id=hunter2"):
        assert hash_of(key) in shown
    assert "header:x-plain=visible" in shown
    assert "{all}" in shown
    lines = request_lines(one, 9)
    assert {line["path"] for line in lines} == {
        *("/key", "/query?***", "/lex"),
        *(f"/users/***/{number}" for number in range(3)),
    }
    told = explained(
        tmp_path / f"gateway-{one.port}.yaml", "/key", *("-H", fields[0], "-H", fields[1])
    )
    assert f"    Key: {hash_of('header:x-api-key=hunter2')}. Cost: 1." in told
    metrics = requests.get(f"{one.admin_url}/metrics", timeout=20).text
    for output in (shown, told, metrics, *one.server.lines, *other.server.lines):
        assert "hunter2" not in output
        assert SECRET not in output


def test_a_program_counts_under_the_same_hash(
    redis_url: str, start_gateway: StartGateway, upstream: RecordingUpstream
) -> None:
    """It names the key as it is."""
    domain = f"d{free_port()}"
    text = CONFIG.format(store=redis_url, domain=domain, secret=SECRET, url=upstream.url)
    gateway = start_gateway(text)
    assert get(gateway.port, "/key", "X-API-Key: a").status == 200
    key = "header:x-api-key=a"

    program = Limiter.from_yaml(text)

    async def ask() -> list[bool]:
        async with program as limiter:
            found = [await limiter.acquire(key, policy="key") for _ in range(2)]
            found.append(await limiter.acquire("b", policy=["plain", "key"]))
            return [decision.allowed for decision in found]

    assert asyncio.run(ask()) == [True, False, True]
    with redis.Redis.from_url(redis_url) as client:
        keys = [key.decode() for key in client.scan_iter(count=1000) if domain.encode() in key]
    assert any(hash_of(key) in one for one in keys)
    assert any(hash_of("b") in one for one in keys)


def test_without_or_with_another_secret_counts_differ(
    mariadb: MariaDB, start_gateway: StartGateway, upstream: RecordingUpstream
) -> None:
    """The secret is part of what a key is; MySQL has no keys either."""
    domain = f"d{free_port()}"
    found = []
    for secret in (SECRET, f"{SECRET}2"):
        text = CONFIG.format(store=mariadb.url, domain=domain, secret=secret, url=upstream.url)
        gateway = start_gateway(text)
        found += [get(gateway.port, "/key", "X-API-Key: hunter2").status for _ in range(3)]
    assert found == [200, 200, 429] * 2
