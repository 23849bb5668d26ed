"""Limits through the front door: refused exactly at the limit, counted for the right one."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import redis

from tests.e2e.load import ask, statuses
from tests.e2e.raw import Answer, RawClient, RecordingUpstream, get
from tests.processes import LOOPBACKS, Gateway, free_port

TRUSTED: Final = "127.0.0.9"

# Limits by the hour: nothing comes back while a test runs.
CONFIG: Final = """
trusted_proxies: [127.0.0.9/32]
upstreams:
  main: {url}
policies:
  shared-by-routes: {{ limit: 3/h per ip }}
  by-route: {{ limit: 3/h per ip+route }}
  pay: {{ limit: 20/m burst 5 per header:X-Key, headers: both }}
  plain: {{ limit: 20/m burst 5 per all, headers: none }}
  draft: {{ limit: 20/m burst 5 per all, headers: draft }}
  legacy: {{ limit: 20/m burst 5 per all, headers: legacy }}
  two: {{ limits: ["3/h per header:X-A", "2/h per header:X-B"] }}
  busy: {{ limit: 1/h per all, on_limit: {{ status: 503, body: "Come back later." }} }}
  silent: {{ limit: 1/h per all, on_limit: {{ body: none }} }}
  rejecting: {{ limit: 5/h per header:X-Key, if_missing: reject }}
  jitter: {{ limit: 1/d per all, on_limit: {{ jitter: 10% }} }}
  slots: {{ limits: [2/m burst 20 per all, 3 at once per all] }}
routes:
  /bucket: {{ upstream: main, limit: 5/h per ip }}
  /log: {{ upstream: main, limit: 5/h per ip, algorithm: sliding_window_log }}
  /crowd-bucket: {{ upstream: main, limit: 50/h per all }}
  /crowd-log: {{ upstream: main, limit: 50/h per all, algorithm: sliding_window_log }}
  /header: {{ upstream: main, limit: "2/h per header:X-Key" }}
  /cookie: {{ upstream: main, limit: "2/h per cookie:session" }}
  /query: {{ upstream: main, limit: "2/h per query:user" }}
  /all: {{ upstream: main, limit: 3/h per all }}
  /shared/a: {{ upstream: main, policies: [shared-by-routes] }}
  /shared/b: {{ upstream: main, policies: [shared-by-routes] }}
  /apart/a: {{ upstream: main, policies: [by-route] }}
  /apart/b: {{ upstream: main, policies: [by-route] }}
  /two: {{ upstream: main, policies: [two] }}
  /spoof: {{ upstream: main, limit: 2/h per ip }}
  /trust: {{ upstream: main, limit: 2/h per ip }}
  /six: {{ upstream: main, limit: 2/h per ip }}
  /six-trust: {{ upstream: main, limit: 2/h per ip }}
  /again: {{ upstream: main, limit: 1/s burst 1 per all }}
  /pay: {{ upstream: main, policies: [pay] }}
  /plain: {{ upstream: main, policies: [plain] }}
  /draft: {{ upstream: main, policies: [draft] }}
  /legacy: {{ upstream: main, policies: [legacy] }}
  /busy: {{ upstream: main, policies: [busy] }}
  /silent: {{ upstream: main, policies: [silent] }}
  /rejecting: {{ upstream: main, policies: [rejecting] }}
  /jitter: {{ upstream: main, policies: [jitter] }}
  /slots: {{ upstream: main, policies: [slots] }}
  POST /upload: {{ upstream: main, limit: 1/h per all }}
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[RecordingUpstream]:
    """An upstream that remembers what it was asked."""
    with RecordingUpstream() as server:
        yield server


@pytest.fixture(scope="module", params=["memory", "redis"])
def gateway(
    request: pytest.FixtureRequest,
    upstream: RecordingUpstream,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    """A gateway with a route for each test; first on the memory store, then on Redis."""
    lines = "store: memory://\n"
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        # A loaded machine is no reason to decide alone.
        lines = f"store: {{ url: '{url}', deadline: 20s }}\ndomain: d{free_port()}\n"
    running = Gateway.start(
        lines + CONFIG.format(url=upstream.url),
        tmp_path_factory.mktemp("gateway"),
        hosts=[f"[{host}]" if ":" in host else host for host in LOOPBACKS],
    )
    yield running
    running.stop()


def _statuses(gateway: Gateway, path: str, times: int, *fields: str, source: str = "") -> list[int]:
    return [get(gateway.port, path, *fields, source=source).status for _ in range(times)]


@pytest.mark.parametrize("path", ["/bucket", "/log"])
def test_refused_exactly_at_the_limit_for_each_client(
    gateway: Gateway, upstream: RecordingUpstream, path: str
) -> None:
    """Five pass and the sixth does not, each address for itself; a refusal goes nowhere."""
    before = len(upstream.heads)
    for source in ("127.0.0.1", "127.0.0.2"):
        assert _statuses(gateway, path, 8, source=source) == [200] * 5 + [429] * 3
    assert len(upstream.heads) - before == 10


@pytest.mark.parametrize("path", ["/crowd-bucket", "/crowd-log"])
async def test_a_crowd_gets_no_more_than_the_limit(gateway: Gateway, path: str) -> None:
    """Of 200 requests at once exactly 50 pass."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=50)) as session:
        samples = await asyncio.gather(
            *(ask(session, gateway.url + path, "crowd") for _ in range(200))
        )
    assert statuses(samples) == {200: 50, 429: 150}


def test_each_value_of_a_header_has_its_own_count(gateway: Gateway) -> None:
    """One key's excess takes nothing from another's; the name's case does not matter."""
    assert _statuses(gateway, "/header", 3, "X-Key: a") == [200, 200, 429]
    assert _statuses(gateway, "/header", 3, "x-key: b") == [200, 200, 429]
    assert _statuses(gateway, "/header", 1, "X-KEY: a") == [429]


def test_cookies_and_query_parameters_are_keys_too(gateway: Gateway) -> None:
    """The named cookie or parameter counts, whatever stands beside it."""
    assert _statuses(gateway, "/cookie", 3, "Cookie: x=1; session=a") == [200, 200, 429]
    assert _statuses(gateway, "/cookie", 1, "Cookie: session=b; x=1") == [200]
    assert _statuses(gateway, "/query?user=a&x=1", 3) == [200, 200, 429]
    assert _statuses(gateway, "/query?x=1&user=a", 1) == [429]
    assert _statuses(gateway, "/query?user=b", 1) == [200]


def test_a_limit_for_all_is_shared_by_all(gateway: Gateway) -> None:
    """Different clients use up one limit."""
    sources = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]
    found = [get(gateway.port, "/all", source=source).status for source in sources]
    assert found == [200, 200, 200, 429]


def test_a_policy_is_one_count_for_all_its_routes_unless_it_counts_by_route(
    gateway: Gateway,
) -> None:
    """Two routes under one policy share its limit; with `route` in the key each has its own."""
    shared = [get(gateway.port, path).status for path in ["/shared/a", "/shared/b"] * 2]
    assert shared == [200, 200, 200, 429]
    apart = [get(gateway.port, path).status for path in ["/apart/a", "/apart/b"] * 4]
    assert apart == [200] * 6 + [429] * 2


def test_all_limits_agree_or_none_is_spent(gateway: Gateway) -> None:
    """A request that one limit refuses takes nothing from the other."""
    assert _statuses(gateway, "/two", 4, "X-A: 1", "X-B: 1") == [200, 200, 429, 429]
    # The refused two took nothing from X-A: 1, which has one left.
    assert _statuses(gateway, "/two", 2, "X-A: 1", "X-B: 2") == [200, 429]
    # Nor did the second of these from X-B: 2, which has one left.
    assert _statuses(gateway, "/two", 2, "X-A: 2", "X-B: 2") == [200, 429]


def test_a_client_that_is_not_trusted_cannot_name_another(gateway: Gateway) -> None:
    """Whatever it writes into forwarding fields, it is counted by its own address."""
    for number in range(4):
        answer = get(
            gateway.port,
            "/spoof",
            f"X-Forwarded-For: 10.0.0.{number}",
            f"Forwarded: for=10.0.0.{number}",
            f"X-Real-IP: 10.0.0.{number}",
        )
        assert answer.status == (200 if number < 2 else 429)


def test_behind_a_trusted_proxy_the_last_untrusted_address_counts(gateway: Gateway) -> None:
    """What a client put into the field before the proxy added to it changes nothing."""
    for number in range(4):
        spoofed = f"X-Forwarded-For: 10.0.0.{number}, 203.0.113.7"
        status = get(gateway.port, "/trust", spoofed, source=TRUSTED).status
        assert status == (200 if number < 2 else 429)
    other = "X-Forwarded-For: 203.0.113.8"
    assert _statuses(gateway, "/trust", 3, other, source=TRUSTED) == [200, 200, 429]
    # The proxy itself is a client like any other where it speaks for nobody.
    assert _statuses(gateway, "/trust", 1, source=TRUSTED) == [200]


def test_ipv6_clients_are_counted_by_their_network(gateway: Gateway) -> None:
    """Addresses of one /64 share a count, as a subscriber has all of them."""
    own = [f"X-Forwarded-For: 2001:db8:0:1::{number}" for number in range(1, 4)]
    found = [get(gateway.port, "/six-trust", field, source=TRUSTED).status for field in own]
    assert found == [200, 200, 429]
    neighbour = "X-Forwarded-For: 2001:db8:0:2::1"
    assert _statuses(gateway, "/six-trust", 1, neighbour, source=TRUSTED) == [200]


def test_ipv6_clients_are_served(gateway: Gateway) -> None:
    """Where there is IPv6, a connection over it is counted apart from one over IPv4."""
    for host in LOOPBACKS:
        with RawClient(gateway.port, host=host) as client:
            assert [client.get("/six").status for _ in range(3)] == [200, 200, 429]


def test_who_obeys_retry_after_is_served(gateway: Gateway) -> None:
    """A refusal names whole seconds, at least one, and after them the request passes."""
    with RawClient(gateway.port) as client:
        assert client.get("/again").status == 200
        refused = client.get("/again")
        assert refused.status == 429
        assert refused.field("Retry-After") == "1"
        time.sleep(int(refused.field("Retry-After")))
        assert client.get("/again").status == 200


def _items(answer: Answer, name: str) -> dict[str, dict[str, int]]:
    """A list of strings with whole-number parameters, as the RateLimit fields are."""
    items = {}
    for member in answer.field(name).split(","):
        found = re.fullmatch(r'\s*"([^"]+)"((?:;\w+=\d+)*)', member)
        assert found, member
        parameters = (part.split("=") for part in found[2].split(";") if part)
        items[found[1]] = {key: int(value) for key, value in parameters}
    return items


def test_answers_tell_what_is_left(gateway: Gateway) -> None:
    """Policy, remaining, window and reset, in both dialects, count down to a refusal."""
    left = []
    for _ in range(5):
        answer = get(gateway.port, "/pay", "X-Key: a")
        assert answer.status == 200
        assert _items(answer, "RateLimit-Policy") == {"pay": {"q": 5, "w": 15}}
        fields = _items(answer, "RateLimit")["pay"]
        assert fields["t"] <= 15
        assert answer.field("X-RateLimit-Limit") == "5"
        assert answer.field("X-RateLimit-Remaining") == str(fields["r"])
        assert 0 < int(answer.field("X-RateLimit-Reset")) <= 15
        left.append(fields["r"])
    assert left == [4, 3, 2, 1, 0]
    refused = get(gateway.port, "/pay", "X-Key: a")
    assert refused.status == 429
    retry_after = int(refused.field("Retry-After"))
    assert 1 <= retry_after <= 3
    assert _items(refused, "RateLimit") == {"pay": {"r": 0, "t": retry_after}}
    assert refused.field("X-RateLimit-Remaining") == "0"


def test_jitter_spreads_those_who_come_back(gateway: Gateway) -> None:
    """`Retry-After` is up to a tenth later, another time for each; all else stays exact."""
    assert get(gateway.port, "/jitter").status == 200
    told = set()
    for _ in range(8):
        answer = get(gateway.port, "/jitter")
        assert answer.status == 429
        exact = _items(answer, "RateLimit")["jitter"]["t"]
        assert answer.field("X-RateLimit-Reset") == str(exact)
        retry_after = int(answer.field("Retry-After"))
        assert exact <= retry_after <= exact * 1.1
        assert json.loads(answer.body)["retry-after"] == retry_after
        told.add(retry_after)
    assert len(told) > 1


def test_requests_in_flight_are_not_told_as_a_rate(gateway: Gateway) -> None:
    """Three at a time are no three a minute: a client that obeys goes on as fast as the rate."""
    answer = get(gateway.port, "/slots")
    assert answer.field("RateLimit-Policy") == (
        '"slots-1";q=20;w=600, "slots-2";q=3;qu="concurrent-requests"'
    )
    assert answer.field("RateLimit") == '"slots-1";r=19;t=600, "slots-2";r=2'
    assert answer.field("X-RateLimit-Limit") == "20"
    assert answer.field("X-RateLimit-Remaining") == "19"
    assert answer.field("X-RateLimit-Reset") == "30"


@pytest.mark.parametrize(
    ("style", "has_draft", "has_legacy"),
    [("plain", False, False), ("draft", True, False), ("legacy", False, True)],
)
def test_fields_come_in_the_configured_dialect(
    gateway: Gateway, style: str, has_draft: bool, has_legacy: bool
) -> None:
    """`headers` says which fields an answer has."""
    answer = get(gateway.port, f"/{style}")
    assert answer.status == 200
    assert bool(answer.all("RateLimit")) is has_draft
    assert bool(answer.all("RateLimit-Policy")) is has_draft
    assert bool(answer.all("X-RateLimit-Limit")) is has_legacy


def test_a_refusal_is_a_problem_document(gateway: Gateway) -> None:
    """Status, policy and time to wait, in the body and in the fields; a refused HEAD has none."""
    get(gateway.port, "/pay", "X-Key: b")
    _statuses(gateway, "/pay", 4, "X-Key: b")
    refused = get(gateway.port, "/pay", "X-Key: b")
    assert refused.status == 429
    assert refused.field("Content-Type") == "application/problem+json"
    document = json.loads(refused.body)
    assert document["status"] == 429
    assert document["violated-policies"] == ["pay"]
    assert str(document["retry-after"]) == refused.field("Retry-After")
    head = get(gateway.port, "/pay", "X-Key: b", method="HEAD")
    assert (head.status, head.body) == (429, b"")


def test_a_refusal_is_worded_by_its_policy(gateway: Gateway) -> None:
    """`on_limit` sets status and body."""
    first, refused = (get(gateway.port, "/busy") for _ in range(2))
    assert (first.status, refused.status) == (200, 503)
    assert refused.body == b"Come back later."
    assert int(refused.field("Retry-After")) > 3000
    assert [get(gateway.port, "/silent").body for _ in range(2)] == [b"ok", b""]


def test_a_request_without_its_key_may_be_rejected(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """`if_missing: reject` answers 400 and names what is missing; nothing reaches the upstream."""
    before = len(upstream.heads)
    answer = get(gateway.port, "/rejecting")
    assert answer.status == 400
    assert "x-key" in json.loads(answer.body)["title"].lower()
    assert len(upstream.heads) == before


def test_a_refused_upload_can_read_why(gateway: Gateway) -> None:
    """A client in the middle of a large upload gets its 429 whole, though nobody reads on."""
    with RawClient(gateway.port) as client:
        client.request("/upload", "Content-Length: 2", method="POST")
        client.send(b"hi")
        assert client.read("POST").status == 200
        client.request("/upload", "Content-Length: 50000000", method="POST")
        client.send(b"x" * 1_000_000)
        refused = client.read("POST")
        assert refused.status == 429
        assert refused.field("Connection").lower() == "close"


def test_every_count_in_redis_ends_by_itself(redis_url: str, tmp_path: Path) -> None:
    """No key of the gateway stays in Redis for ever."""
    with RecordingUpstream() as upstream:
        domain = f"ttl{free_port()}"
        gateway = Gateway.start(
            f"store: {{ url: '{redis_url}', deadline: 20s }}\ndomain: {domain}\n"
            + CONFIG.format(url=upstream.url),
            tmp_path,
        )
        for path in ("/bucket", "/log", "/two", "/pay"):
            get(gateway.port, path, "X-A: 1", "X-B: 1", "X-Key: 1")
        with redis.Redis.from_url(redis_url) as client:
            keys = list(client.scan_iter(f"*{domain}*"))
            assert len(keys) >= 4
            assert [key for key in keys if client.ttl(key) < 0] == []
        gateway.stop()
