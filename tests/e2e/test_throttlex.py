"""ThrottleX's filter in front of a service, on a database that its own service made."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final

import aiohttp

from tests.conftest import StartGateway
from tests.e2e.raw import RawConnection, RawUpstream
from tests.mariadb import MariaDB
from tests.servers import becomes
from tests.throttlex import Service
from tests.upstreams import Upstream

CONFIG: Final = """
store: {{ url: '{database}', deadline: 20s }}
trusted_proxies: [127.0.0.1]
policies:
  filter: {{ throttlex: {{ policies: table }} }}
  users:
    throttlex: {{ type: SLIDING_WINDOW, capacity: 2, windowSeconds: 3600, per: [route, user],
      user: "header:X-User" }}
routes:
  /**: {{ upstream: {url}, policies: filter }}
  /v1/pay: {{ upstream: {url}, policies: users }}
"""
SHOWN: Final = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "Retry-After")


async def ask(url: str, client: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request of a client behind a proxy: status, what is said of limits, body."""
    fields = {"X-Forwarded-For": client, **headers}
    async with aiohttp.ClientSession() as session, session.get(url, headers=fields) as answer:
        names = [
            name for name in answer.headers if "rate" in name.lower() or "retry" in name.lower()
        ]
        return answer.status, {name: answer.headers[name] for name in names}, await answer.read()


def said(limit: int, remaining: int, retry_after: int | None) -> dict[str, str]:
    """What an answer says of limits, and nothing else."""
    values = (limit, remaining, retry_after)
    return {name: str(one) for name, one in zip(SHOWN, values, strict=True) if one is not None}


async def test_answers_are_those_of_its_design(
    start_gateway: StartGateway,
    mariadb: MariaDB,
    throttlex_service: Service,
    nginx_upstream: Upstream,
) -> None:
    """Three fields on every answer, and its JSON on those that refuse; to the letter."""
    throttlex_service.put_policy("203.0.113.7", "TOKEN_BUCKET", 2, 0)
    throttlex_service.put_policy("203.0.113.8", "SLIDING_WINDOW", 1, 0, 3600)
    throttlex_service.put_policy("203.0.113.9", "TOKEN_BUCKET", 0, 5)
    gateway = start_gateway(CONFIG.format(database=mariadb.url, url=nginx_upstream.url))
    url = f"{gateway.url}/nothing"
    assert (await ask(url, "203.0.113.1"))[:2] == (404, said(100, 99, 0))
    assert (await ask(url, "203.0.113.7"))[:2] == (404, said(2, 1, 0))
    assert (await ask(url, "203.0.113.7"))[:2] == (404, said(2, 0, None))
    assert (await ask(url, "203.0.113.7"))[:2] == (429, said(2, 0, None))
    assert (await ask(url, "203.0.113.9"))[:2] == (429, said(0, 0, None))
    assert (await ask(url, "203.0.113.8"))[:2] == (404, said(1, 0, None))
    status, fields, body = await ask(url, "203.0.113.8")
    assert (status, fields) == (429, said(1, 0, 3600))
    document = json.loads(body)
    timestamp = document.pop("timestamp")
    assert document == {
        "status": 429,
        "error": "Too Many Requests",
        "message": "Rate limit exceeded for key: 203.0.113.8",
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", timestamp)


async def test_the_route_of_a_key_may_be_the_path(
    start_gateway: StartGateway, mariadb: MariaDB, nginx_upstream: Upstream
) -> None:
    """Each path of a wildcard by itself, under the key of its design; a query is no part of it."""
    config = CONFIG.format(database=mariadb.url, url=nginx_upstream.url)
    config = config.replace("per: [route, user]", "per: [route, user], route: path")
    gateway = start_gateway(config.replace("  /v1/pay:", "  /v1/**:"))
    for path in ("pay", "refund"):
        answers = [
            (await ask(f"{gateway.url}/v1/{path}{more}", "203.0.113.1", **{"X-User": "by-path"}))
            for more in ("", "?a=1", "/")
        ]
        assert [status for status, _, _ in answers] == [404, 404, 429]
        message = json.loads(answers[-1][2])["message"]
        assert message == f"Rate limit exceeded for key: user:by-path|route:/v1/{path}"


async def test_keys_of_several_parts(
    start_gateway: StartGateway,
    mariadb: MariaDB,
    throttlex_service: Service,
    nginx_upstream: Upstream,
) -> None:
    """They are in its order, and name its rows."""
    gateway = start_gateway(CONFIG.format(database=mariadb.url, url=nginx_upstream.url))
    url = f"{gateway.url}/v1/pay"
    answers = [await ask(url, "203.0.113.7", **{"X-User": "123"}) for _ in range(3)]
    assert [status for status, _, _ in answers] == [404, 404, 429]
    assert json.loads(answers[2][2])["message"].endswith(" key: user:123|route:/v1/pay")
    assert mariadb.sql("SELECT key_id FROM throttlex_sw_log") == [("user:123|route:/v1/pay",)] * 2


async def test_policies_take_effect_while_it_runs(
    start_gateway: StartGateway,
    mariadb: MariaDB,
    throttlex_service: Service,
    nginx_upstream: Upstream,
) -> None:
    """What its admin API does to its table is heeded soon, and tokens stay what they are."""
    gateway = start_gateway(CONFIG.format(database=mariadb.url, url=nginx_upstream.url))
    url = f"{gateway.url}/nothing"
    client = "203.0.113.7"
    throttlex_service.check(client)

    async def limit() -> str:
        return (await ask(url, client))[1]["X-RateLimit-Limit"]

    throttlex_service.put_policy(client, "TOKEN_BUCKET", 3, 0)
    await becomes(limit, "3")
    throttlex_service.put_policy(client, "TOKEN_BUCKET", 50, 0)
    await becomes(limit, "50")
    status, fields, _ = await ask(url, client)
    assert (status, fields) == (429, said(50, 0, None))


async def test_two_gateways_and_the_service(
    start_gateway: StartGateway,
    mariadb: MariaDB,
    throttlex_service: Service,
    nginx_upstream: Upstream,
) -> None:
    """All three on one key at once let exactly its capacity through."""
    client = "203.0.113.7"
    throttlex_service.put_policy(client, "TOKEN_BUCKET", 40, 0)
    config = CONFIG.format(database=mariadb.url, url=nginx_upstream.url)
    gateways = [start_gateway(config) for _ in range(2)]
    answers: Any = await asyncio.gather(
        *(ask(f"{gateway.url}/nothing", client) for gateway in gateways for _ in range(25)),
        *(asyncio.to_thread(throttlex_service.check, client) for _ in range(5)),
    )
    passed = [one.allowed if hasattr(one, "allowed") else one[0] == 404 for one in answers]
    assert sum(passed) == 40


async def test_only_proxies_are_believed(
    start_gateway: StartGateway,
    mariadb: MariaDB,
    throttlex_service: Service,
    nginx_upstream: Upstream,
) -> None:
    """A client that names an address is counted by its own all the same."""
    throttlex_service.put_policy("203.0.113.9", "TOKEN_BUCKET", 5, 0)
    config = CONFIG.format(database=mariadb.url, url=nginx_upstream.url)
    gateway = start_gateway(config.replace("[127.0.0.1]", "[192.0.2.1]"))
    assert (await ask(gateway.url, "203.0.113.9"))[1]["X-RateLimit-Limit"] == "100"
    assert mariadb.sql("SELECT key_id FROM throttlex_usage") == [("127.0.0.1",)]


async def test_an_application_says_itself_when_it_can_be_asked_again(
    start_gateway: StartGateway, mariadb: MariaDB, throttlex_service: Service
) -> None:
    """One `Retry-After`, which is its own."""

    def busy(connection: RawConnection) -> None:
        while connection.read_head():
            connection.send(b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n")

    with RawUpstream(busy) as upstream:
        gateway = start_gateway(CONFIG.format(database=mariadb.url, url=upstream.url))
        async with aiohttp.ClientSession() as session, session.get(gateway.url) as answer:
            assert answer.headers.getall("Retry-After") == ["7"]
            assert answer.headers["X-RateLimit-Remaining"] == "99"
