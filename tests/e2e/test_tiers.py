"""Tiers: other limits for some clients, by a trusted field, a certificate or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from gateway.library import Limiter
from tests.conftest import StartGateway
from tests.e2e.raw import Answer, get
from tests.library.http import asgi_served
from tests.processes import Gateway, free_port
from tests.workers.family import wait_until

CONFIG: Final = """\
store: {{ url: '{store}', deadline: 20s }}
domain: d{domain}
trusted_proxies: 127.0.0.1
policies:
  plan:
    limit: 1/h per header:X-User
    tier: header:X-Plan
    tiers: {{ pro: [3/h, 5/h per all], internal: unlimited }}
  keys:
    limit: 2/h per header:X-API-Key
    tier: {{ per: header:X-API-Key, file: '{file}', unknown: ip }}
    tiers: {{ free: 1/h, pro: 3/h }}
  cookies:
    limit: 1/h per cookie:sid
    tier: {{ per: cookie:sid, file: '{file}', unknown: deny }}
    tiers: {{ free: 1/h, pro: 3/h }}
  beside: 4/h per header:X-Other
routes:
  /plan: {{ respond: hello, policies: [plan, beside] }}
  /keys: {{ respond: hello, policies: keys }}
  /cookies: {{ respond: hello, policies: cookies }}
"""
TABLE: Final = '# key, tier\nk1,free\n\n"k,2",pro\nk3,pro\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A table of keys and their tiers."""
    path = tmp_path / "keys.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture(params=["memory", "redis"])
def gateway(request: pytest.FixtureRequest, start_gateway: StartGateway, file: Path) -> Gateway:
    """A gateway with tiers, whose counts are in it or in Redis."""
    store = "memory://" if request.param == "memory" else request.getfixturevalue("redis_url")
    return start_gateway(CONFIG.format(store=store, domain=free_port(), file=file))


def _ask(gateway: Gateway, path: str, *fields: str, by: str = "192.0.2.1") -> Answer:
    return get(gateway.port, path, f"X-Forwarded-For: {by}", *fields)


def _statuses(gateway: Gateway, path: str, *fields: str, count: int = 4, **more: str) -> list[int]:
    return [_ask(gateway, path, *fields, **more).status for _ in range(count)]


def test_a_trusted_field_names_the_tier(gateway: Gateway) -> None:
    """Each tier has limits and counts of its own; the other policies of the route stay."""
    assert _statuses(gateway, "/plan", "X-User: a") == [200, 429, 429, 429]
    pro = ("X-User: a", "X-Plan: pro", "X-Other: 1")
    first = _ask(gateway, "/plan", *pro)
    assert first.field("RateLimit-Policy") == (
        '"plan-1";q=3;w=3600, "plan-2";q=5;w=3600, "beside";q=4;w=3600'
    )
    assert _statuses(gateway, "/plan", *pro) == [200, 200, 429, 429]
    # What all of the tier share.
    assert _statuses(gateway, "/plan", "X-User: b", "X-Plan: pro", "X-Other: 2") == [
        *(200, 200, 429, 429)
    ]
    unlimited = ("X-User: a", "X-Plan: internal", "X-Other: 3")
    assert _statuses(gateway, "/plan", *unlimited, count=6) == [200] * 4 + [429] * 2
    assert _ask(gateway, "/plan", *unlimited).field("RateLimit-Policy") == '"beside";q=4;w=3600'
    assert _ask(gateway, "/plan", "X-User: c", "X-Plan: gold").status == 200
    assert _ask(gateway, "/plan", "X-Plan: pro", "X-Plan: internal").status == 400


def test_nobody_else_is_believed(start_gateway: StartGateway, file: Path) -> None:
    """A client that writes the field itself has no tier."""
    config = CONFIG.format(store="memory://", domain="d", file=file)
    gateway = start_gateway(config.replace("127.0.0.1", "192.0.2.0/24"))
    fields = ("X-User: a", "X-Plan: internal")
    assert [get(gateway.port, "/plan", *fields).status for _ in range(2)] == [200, 429]


def test_a_file_has_the_tiers_of_keys(gateway: Gateway) -> None:
    """Keys that it does not have share the bucket of their address."""
    assert _statuses(gateway, "/keys", "X-API-Key: k1") == [200, 429, 429, 429]
    assert _statuses(gateway, "/keys", "X-API-Key: k,2") == [200, 200, 200, 429]
    assert _statuses(gateway, "/keys", "X-API-Key: k3") == [200, 200, 200, 429]
    made_up = [_ask(gateway, "/keys", f"X-API-Key: made-up-{number}") for number in range(3)]
    assert [one.status for one in made_up] == [200, 200, 429]
    assert _ask(gateway, "/keys").status == 429
    assert _ask(gateway, "/keys", by="192.0.2.2").status == 200
    assert _ask(gateway, "/keys", "X-API-Key: k1", "X-API-Key: k3").status == 400


def test_single_clients_have_tiers(start_gateway: StartGateway, file: Path) -> None:
    """Whatever the file says of them; without a file, others have the limits of the policy."""
    gateway = start_gateway(
        f"""
policies:
  both:
    limit: 1/h per header:X-API-Key
    tier: {{ per: header:X-API-Key, file: '{file}', clients: {{ k1: pro, k9: free }} }}
    tiers: {{ free: 2/h, pro: 3/h }}
  alone:
    limit: 1/h per query:key
    tier: {{ per: query:key, clients: {{ k1: internal, k2: pro }} }}
    tiers: {{ pro: 2/h, internal: unlimited }}
routes:
  /both: {{ respond: hello, policies: both }}
  /alone: {{ respond: hello, policies: alone }}
"""
    )

    def passed(path: str, *fields: str) -> int:
        return [get(gateway.port, path, *fields).status for _ in range(5)].count(200)

    keys = ("k1", "k9", "k3", "k4")
    assert [passed("/both", f"X-API-Key: {key}") for key in keys] == [3, 2, 3, 1]
    assert [passed(f"/alone?key={key}") for key in ("k1", "k2", "k3")] == [5, 2, 1]
    assert passed("/alone?key=k1&key=k3") == 0


def test_who_is_in_no_tier_may_be_refused(gateway: Gateway) -> None:
    """With 403; several cookies count if all of them have one tier."""
    assert _statuses(gateway, "/cookies", "Cookie: sid=k1") == [200, 429, 429, 429]
    assert _ask(gateway, "/cookies", "Cookie: sid=x").status == 403
    assert _ask(gateway, "/cookies").status == 403
    assert _ask(gateway, "/cookies", "Cookie: sid=k1; sid=k3").status == 403
    assert _ask(gateway, "/cookies", 'Cookie: sid="k3"; sid=k3').status == 200


@pytest.mark.parametrize("workers", [1, 2])
def test_a_table_that_changes(start_gateway: StartGateway, file: Path, workers: int) -> None:
    """It is taken up within seconds, by all workers; a broken one changes nothing."""
    gateway = start_gateway(
        f"server: {{ workers: {workers}, watch: off }}\n"
        f"routes: {{ /**: {{ respond: hello, limit: 1000/s per header:X-API-Key,\n"
        f"  tier: {{ per: header:X-API-Key, file: '{file}', unknown: deny }},\n"
        "  tiers: { free: 1000/s, pro: unlimited } } }\n"
    )

    def statuses(key: str) -> set[int]:
        return {get(gateway.port, "/", f"X-API-Key: {key}").status for _ in range(8)}

    assert (statuses("k1"), statuses("new")) == ({200}, {403})
    file.write_text("new,free\n")
    wait_until(lambda: statuses("new") == {200}, "the new key has its tier")
    wait_until(lambda: statuses("k1") == {403}, "the old one has none")
    file.write_text("k1,gold\n")
    wait_until(lambda: "there is no tier 'gold'" in gateway.server.stdout, "it is logged")
    assert (statuses("k1"), statuses("new")) == ({403}, {200})


BROKEN: Final = [
    ("keys.csv", "k1,gold\n", "line 1: there is no tier 'gold'"),
    ("keys.csv", "\n# x\nk1\n", "line 3: a client and its tier were expected"),
    ("keys.csv", "k1,free\nk2,pro\nk1,pro\n", "the client 'k1' has two tiers"),
    ("keys.csv", "k1,free,more\n", "line 1: a client and its tier were expected"),
    ("keys.csv", ",free\n", "line 1: a client and its tier were expected"),
    ("keys.csv", 'k1,free\n"k2,pro\n', "line 2: "),
    ("keys.yaml", "k1: gold\n", "there is no tier 'gold'"),
    ("keys.yaml", "k1: [free]\n", "a client and its tier were expected"),
    ("keys.yml", "- k1\n", "a mapping of clients to tiers was expected"),
    ("keys.yml", "k1: {\n", "line "),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
async def test_a_table_that_is_wrong(tmp_path: Path, name: str, content: str, message: str) -> None:
    """Says where, and what is known."""
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(Exception, match=name) as raised:
        await _limiter(path).open()
    assert message in str(raised.value)


def _limiter(path: Path) -> Limiter:
    policy: dict[str, Any] = {
        "limit": "2/h per header:X-API-Key",
        "tier": {"per": "header:X-API-Key", "file": str(path)},
        "tiers": {"free": "1/h", "pro": "3/h"},
    }
    return Limiter.from_mapping({"policies": {"keys": policy}})


async def test_middlewares_have_tiers(tmp_path: Path) -> None:
    """From a file of YAML, numbers and quotes in it."""
    path = tmp_path / "keys.yaml"
    path.write_text("k1: free\n'0815': pro\n4711: pro\n")
    async with asgi_served(_limiter(path), "keys") as site:
        for key, passed in (("k1", 1), ("0815", 3), ("4711", 3), ("x", 2)):
            fields = {"X-API-Key": key}
            asked = [await site.ask("/hello", headers=fields) for _ in range(4)]
            assert [one.status for one in asked].count(200) == passed
