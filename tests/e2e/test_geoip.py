"""Limits and lists by country and autonomous system, through the front door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import Answer, RecordingUpstream, get
from tests.e2e.signs import log_lines
from tests.e2e.test_explain import explained
from tests.geoip import database, system, write_countries
from tests.processes import Gateway
from tests.workers.family import wait_until

CONFIG: Final = """\
trusted_proxies: 127.0.0.1
geoip: {{ country: country.mmdb, asn: asn.mmdb }}
lists:
  embargo: {{ per: country, values: [kp] }}
  partners: {{ per: asn, file: partners.txt }}
  home: {{ per: country, values: [DE, FR] }}
deny: embargo
policies:
  land: {{ limit: 2/h per country, if_missing: reject }}
  net: {{ limit: 1/h per asn, if_missing: skip, except: partners }}
  both: {{ limit: 1/h per country+header:x-user, if_missing: unauthorized }}
  plans: {{ limit: 1/h per ip, tier: country, tiers: {{ DE: 2/h }} }}
routes:
  /land: {{ upstream: '{url}', policies: land }}
  /net: {{ upstream: '{url}', policies: net }}
  /both: {{ upstream: '{url}', policies: both }}
  /plans: {{ upstream: '{url}', policies: plans }}
  /home: {{ upstream: '{url}', allow: home }}
  /foreign: {{ upstream: '{url}', deny: home }}
"""
COUNTRIES: Final = {
    "203.0.113.0/24": "DE",
    "198.51.100.0/24": "KP",
    "2001:db8:1::/48": "DE",
    "2001:db8:2::/48": "FR",
}


@pytest.fixture
def upstream() -> Iterator[RecordingUpstream]:
    """What routes lead to."""
    with RecordingUpstream() as server:
        yield server


@pytest.fixture
def gateway(start_gateway: StartGateway, upstream: RecordingUpstream, tmp_path: Path) -> Gateway:
    """A gateway with both databases."""
    write_countries(tmp_path / "country.mmdb", COUNTRIES)
    systems = {"203.0.113.0/24": system(64496), "2001:db8::/32": system(64511)}
    (tmp_path / "asn.mmdb").write_bytes(database(systems, "GeoLite2-ASN"))
    (tmp_path / "partners.txt").write_text("# ours\nAS64511\n")
    return start_gateway(CONFIG.format(url=upstream.url))


def _ask(gateway: Gateway, path: str, by: str, *fields: str) -> Answer:
    return get(gateway.port, path, *fields, f"X-Forwarded-For: {by}")


def test_countries_have_their_own_counts(gateway: Gateway, tmp_path: Path) -> None:
    """Whichever address of it, of whichever family; an address in none is told that."""
    of_germany = ("203.0.113.7", "::ffff:203.0.113.8", "2001:db8:1::9")
    assert [_ask(gateway, "/land", by).status for by in of_germany] == [200, 200, 429]
    assert _ask(gateway, "/land", "2001:db8:2::1").status == 200
    for by in ("192.0.2.1", "2001:db8:3::1", "garbage"):
        missing = _ask(gateway, "/land", by)
        assert missing.status == 400
        assert "country" in json.loads(missing.body)["title"]
    assert _ask(gateway, "/both", "192.0.2.1", "X-User: a").status == 401
    found = [
        _ask(gateway, "/both", by, f"X-User: {user}").status
        for by, user in (
            ("203.0.113.7", "a"),
            ("2001:db8:1::9", "a"),
            ("203.0.113.7", "b"),
            ("2001:db8:2::1", "a"),
        )
    ]
    assert found == [200, 429, 200, 200]
    assert [_ask(gateway, "/plans", "203.0.113.7").status for _ in range(3)] == [200, 200, 429]
    assert [_ask(gateway, "/plans", "192.0.2.1").status for _ in range(2)] == [200, 429]

    file = tmp_path / f"gateway-{gateway.port}.yaml"
    told = explained(file, "/land", "--from", "203.0.113.7")
    assert "    Key: country=DE. Cost: 1." in told


def test_systems_have_their_own_counts(gateway: Gateway) -> None:
    """Those in a list have none, and neither have addresses of no system."""
    assert [_ask(gateway, "/net", f"203.0.113.{n}").status for n in (1, 2)] == [200, 429]
    for by in ("2001:db8:1::1", "192.0.2.1"):
        assert [_ask(gateway, "/net", by).status for _ in range(3)] == [200] * 3


def test_lists_of_countries(gateway: Gateway) -> None:
    """Who is in a denied one is not served, nor who is not in an allowed one."""
    for path in ("/land", "/home", "/foreign"):
        assert _ask(gateway, path, "198.51.100.9").status == 403
    assert [_ask(gateway, "/home", by).status for by in ("203.0.113.1", "192.0.2.1")] == [200, 403]
    assert [_ask(gateway, "/foreign", by).status for by in ("2001:db8:2::1", "192.0.2.1")] == [
        403,
        200,
    ]


def test_a_changed_database_is_taken_up(gateway: Gateway, tmp_path: Path) -> None:
    """A broken one leaves the one before and is reported once; lists follow as well."""
    path = tmp_path / "country.mmdb"
    assert _ask(gateway, "/home", "203.0.113.1").status == 200
    path.write_bytes(b"half a file")

    def complaints() -> int:
        return sum("is not a database" in str(line) for line in log_lines(gateway))

    wait_until(lambda: complaints() > 0, "the broken file was not reported")
    assert _ask(gateway, "/home", "203.0.113.1").status == 200
    write_countries(path, {"203.0.113.0/24": "KP", "192.0.2.0/24": "FR"})
    wait_until(
        lambda: _ask(gateway, "/home", "203.0.113.1").status == 403,
        "the changed file was not read",
    )
    assert _ask(gateway, "/home", "192.0.2.1").status == 200
    assert complaints() == 1
    assert any("changed files are now in use" in str(line) for line in log_lines(gateway))
