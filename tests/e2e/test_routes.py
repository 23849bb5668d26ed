"""Which route a request takes, as its `RateLimit-Policy` field tells: the most specific one."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import Answer, RawClient, RecordingUpstream
from tests.processes import Gateway

CONFIG: Final = """
routes:
  /**: {{ name: rest, upstream: {url}, limit: 100000/s }}
  /v1/**: {{ name: prefix, upstream: {url}, limit: 100000/s }}
  /v1/pay: {{ name: exact, upstream: {url}, limit: 100000/s }}
  /v1/users/{{id}}/orders: {{ name: segment, upstream: {url}, limit: 100000/s }}
  /v1/users/me/orders: {{ name: me, upstream: {url}, limit: 100000/s }}
  POST /v1/pay: {{ name: post, upstream: {url}, limit: 100000/s }}
  GET,PUT /only: {{ name: only, upstream: {url}, limit: 100000/s }}
  api.example.com/v1/**: {{ name: host, upstream: {url}, limit: 100000/s }}
  "*.example.com/**": {{ name: wildcard, upstream: {url}, limit: 100000/s }}
  "*.eu.example.com/**": {{ name: longer, upstream: {url}, limit: 100000/s }}
  strict.test/here: {{ name: here, upstream: {url}, limit: 100000/s }}
  /beta:
    - {{ name: stable, upstream: {url}, limit: 100000/s }}
    - {{ name: beta, upstream: {url}, limit: 100000/s, headers: {{ X-Beta: "1" }} }}
    - {{ name: any, upstream: {url}, limit: 100000/s, headers: {{ X-Any: "*" }} }}
"""

CASES: Final = [
    ("GET", "any.test", "/", "", "rest"),
    ("GET", "any.test", "/v1", "", "prefix"),
    ("GET", "any.test", "/v1/", "", "prefix"),
    ("GET", "any.test", "/v1/other/and/more?x=/v1/pay", "", "prefix"),
    ("GET", "any.test", "/v10", "", "rest"),
    ("GET", "any.test", "/v1/pay", "", "exact"),
    ("GET", "any.test", "/v1/pay?x=1", "", "exact"),
    ("GET", "any.test", "/v1/%70ay", "", "exact"),
    ("GET", "any.test", "/v1/pay/more", "", "prefix"),
    ("POST", "any.test", "/v1/pay", "", "post"),
    ("GET", "any.test", "/v1/users/7/orders", "", "segment"),
    ("GET", "any.test", "/v1/users/me/orders", "", "me"),
    ("GET", "any.test", "/v1/users/7/8/orders", "", "prefix"),
    ("PUT", "any.test", "/only", "", "only"),
    ("DELETE", "any.test", "/only", "", "rest"),
    ("GET", "api.example.com", "/v1/pay", "", "host"),
    ("GET", "API.Example.COM:8080", "/v1/pay", "", "host"),
    ("GET", "api.example.com", "/v2", "", "wildcard"),
    ("GET", "a.b.example.com", "/v1/pay", "", "wildcard"),
    ("GET", "a.eu.example.com", "/v1/pay", "", "longer"),
    ("GET", "example.com", "/v1/pay", "", "exact"),
    ("GET", "strict.test", "/here", "", "here"),
    ("GET", "strict.test", "/there", "", "rest"),
    ("GET", "any.test", "/beta", "", "stable"),
    ("GET", "any.test", "/beta", "x-beta: 1", "beta"),
    ("GET", "any.test", "/beta", "X-Beta: 2", "stable"),
    ("GET", "any.test", "/beta", "X-Any: thing", "any"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RawClient]:
    """A connection to a gateway with the routes of `CONFIG`."""
    with RecordingUpstream() as upstream:
        folder = tmp_path_factory.mktemp("gateway")
        gateway = Gateway.start(CONFIG.format(url=upstream.url), folder)
        with RawClient(gateway.port) as connection:
            yield connection
        gateway.stop()


def _ask(client: RawClient, method: str, host: str, path: str, field: str = "") -> Answer:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *([field] if field else []), "", ""]
    client.send("\r\n".join(lines).encode())
    return client.read(method)


def _route(answer: Answer) -> str:
    assert answer.status == 200
    found = re.match(r'"([^"]+)"', answer.field("RateLimit-Policy"))
    assert found
    return found[1]


@pytest.mark.parametrize(("method", "host", "path", "field", "route"), CASES)
def test_the_most_specific_route_wins(
    client: RawClient, method: str, host: str, path: str, field: str, route: str
) -> None:
    """Host before path before method before headers, on one connection for all."""
    assert _route(_ask(client, method, host, path, field)) == route


def test_what_no_route_wants(start_gateway: StartGateway) -> None:
    """404 where no path matches, 405 with `Allow` where only the method does not."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(f"routes:\n  GET,PUT /only: {{ upstream: {upstream.url} }}\n")
        with RawClient(gateway.port) as client:
            assert _ask(client, "GET", "any.test", "/other").status == 404
            wrong = _ask(client, "DELETE", "any.test", "/only")
            assert wrong.status == 405
            assert {word.strip() for word in wrong.field("Allow").split(",")} >= {"GET", "PUT"}
            assert _ask(client, "GET", "any.test", "/only").status == 200


def test_many_routes_cost_a_request_nothing(start_gateway: StartGateway) -> None:
    """Among 4,000 routes the last is found about as fast as the first."""
    with RecordingUpstream() as upstream:
        routes = "".join(
            f"  /r{number}: {{ upstream: main }}\n  /p{number}/**: {{ upstream: main }}\n"
            for number in range(2_000)
        )
        gateway = start_gateway(f"upstreams:\n  main: {upstream.url}\nroutes:\n{routes}")
        with RawClient(gateway.port) as client:
            spent = {}
            for path in ("/r0", "/r1999", "/p0/x/y", "/p1999/x/y"):
                best = float("inf")
                for _ in range(50):
                    started = time.perf_counter()
                    assert client.get(path).status == 200
                    best = min(best, time.perf_counter() - started)
                spent[path] = best
            assert client.get("/p2000/x").status == 404
        # A walk through thousands of patterns would cost milliseconds.
        assert max(spent.values()) < min(spent.values()) + 0.001, spent
