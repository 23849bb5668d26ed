"""Databases of addresses: what is read, what is refused, and when they are read again."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from multidict import CIMultiDict

from gateway import Limiter
from gateway.base.errors import StartError, UnusableFileError
from gateway.config.checking.check import check_text
from gateway.integrations.guard import Guard, Head
from gateway.routing.places import AddressPlaces
from gateway.wiring import geoip
from gateway.wiring.geoip import GeoipSource, require_reader
from gateway.wiring.sources import source_problems
from tests.geoip import MARKER, country, database, system, write_countries

COUNTRIES = {
    "203.0.113.0/24": country("DE"),
    "198.51.100.128/25": country("FR"),
    "198.51.100.1/32": country("BE"),
    "2001:db8::/32": country("JP"),
    "2001:db9:0:0:1::/80": country("KR"),
}
FOUND = {
    "203.0.113.0": "DE",
    "203.0.113.255": "DE",
    "203.0.112.255": "",
    "203.0.114.0": "",
    "198.51.100.127": "",
    "198.51.100.128": "FR",
    "198.51.100.1": "BE",
    "198.51.100.2": "",
    "::ffff:203.0.113.7": "DE",
    "64:ff9b::203.0.113.7": "DE",
    "2001:db8:ffff::1": "JP",
    "2001:db7:ffff::": "",
    "2001:db9:0:0:1::2": "KR",
    "2001:db9::1": "",
    "fe80::1%eth0": "",
    "unknown": "",
    "": "",
}


def _loaded(path: Path, word: str = "country") -> AddressPlaces:
    source = GeoipSource(word, path)
    source.load()
    return source.content


@pytest.mark.parametrize("record_size", [24, 28, 32])
def test_addresses_are_found(tmp_path: Path, record_size: int) -> None:
    """Of IPv4, of IPv6, and of IPv4 inside IPv6; an address beside a network has no country."""
    path = tmp_path / "country.mmdb"
    path.write_bytes(database(COUNTRIES, "GeoLite2-Country", record_size=record_size))
    places = _loaded(path)
    for _ in range(2):
        assert {address: places.find(address) for address in FOUND} == FOUND


def test_a_database_without_ipv6(tmp_path: Path) -> None:
    """Its IPv6 addresses have no country, and are no error."""
    path = tmp_path / "country.mmdb"
    path.write_bytes(database({"203.0.113.0/24": country("DE")}, "X-City", ip_version=4))
    places = _loaded(path)
    assert places.find("203.0.113.9") == "DE"
    assert places.find("::ffff:203.0.113.9") == "DE"
    assert places.find("2001:db8::1") == ""


def test_autonomous_systems(tmp_path: Path) -> None:
    """A number without AS; one of 32 bits as well."""
    path = tmp_path / "asn.mmdb"
    records = {"203.0.113.0/24": system(64496), "2001:db8::/32": system(4200000001)}
    path.write_bytes(database(records, "GeoLite2-ASN"))
    places = _loaded(path, "asn")
    assert places.find("203.0.113.9") == "64496"
    assert places.find("2001:db8::9") == "4200000001"
    assert places.find("192.0.2.1") == ""


@pytest.mark.parametrize(
    ("word", "content", "message"),
    [
        ("country", b"", "is not a database in MaxMind's format, or is damaged"),
        ("country", b"203.0.113.0/24 DE\n", "is not a database in MaxMind's format"),
        ("country", MARKER, "is not a database in MaxMind's format"),
        ("country", MARKER * 1000, "is not a database in MaxMind's format"),
        ("asn", database(COUNTRIES, "GeoLite2-Country"), "another type: GeoLite2-Country"),
        ("country", database({}, "GeoLite2-ASN"), "another type: GeoLite2-ASN"),
        ("country", database({}, "GeoIP2-Anonymous-IP"), "another type: GeoIP2-Anonymous-IP"),
    ],
)
def test_a_file_that_is_something_else(
    tmp_path: Path, word: str, content: bytes, message: str
) -> None:
    """It is empty, or text, or a database without this key."""
    path = tmp_path / "some.mmdb"
    path.write_bytes(content)
    with pytest.raises(UnusableFileError) as raised:
        _loaded(path, word)
    assert message in raised.value.message
    assert str(path) in raised.value.message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """It is missing, no file, or too large."""
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UnusableFileError, match="cannot be read"):
            _loaded(path)
    path = tmp_path / "large"
    with path.open("wb") as stream:
        stream.truncate(geoip.MAX_BYTES + 1)
    with pytest.raises(UnusableFileError, match="is larger than"):
        _loaded(path)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    """Wherever it ends: what says where everything is stands at its end."""
    whole = database(COUNTRIES, "GeoLite2-Country")
    path = tmp_path / "country.mmdb"
    offsets = random.Random(7).sample(range(len(whole)), 200)
    for offset in sorted({*offsets, *range(len(whole) - 40, len(whole))}):
        path.write_bytes(whole[:offset])
        with pytest.raises(UnusableFileError):
            _loaded(path)


def test_a_damaged_file_is_refused_or_finds_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that is in it makes a look-up fail, and each file is reported once."""
    whole = database(COUNTRIES, "GeoLite2-Country")
    path = tmp_path / "country.mmdb"
    draw = random.Random(7)
    refused = 0
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(draw.choice((1, 1, 4, 64))):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content)
        caplog.clear()
        try:
            places = _loaded(path)
        except UnusableFileError:
            refused += 1
            continue
        for address in FOUND:
            found = places.find(address)
            assert found == "" or (len(found) == 2 and found.isascii() and found.isupper())
        assert len(caplog.records) <= 1
    assert 0 < refused < 400


def test_a_record_that_is_broken_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client has no country then; others have theirs."""
    records = {"203.0.113.0/24": country("DE"), "198.51.100.0/24": {"broken": "here"}}
    whole = database(records, "GeoLite2-Country")
    path = tmp_path / "country.mmdb"
    # A pointer to beyond the end of the file.
    path.write_bytes(whole.replace(b"\xe1\x46broken", b"\x38\xff\xff\xff\xff\xff\xff\xff"))
    places = _loaded(path)
    with caplog.at_level(logging.WARNING):
        assert [places.find(f"198.51.100.{last}") for last in (1, 2, 3)] == ["", "", ""]
    assert places.find("203.0.113.1") == "DE"
    (record,) = caplog.records
    assert f"{path} is damaged" in record.getMessage()


def test_a_changed_file_is_read_when_it_is_whole(tmp_path: Path) -> None:
    """A half-written or broken one leaves the one before; each is reported once."""
    path = tmp_path / "country.mmdb"
    write_countries(path, {"203.0.113.0/24": "DE"})
    source = GeoipSource("country", path)
    source.load()
    places = source.content
    assert places.find("203.0.113.1") == "DE"
    assert not source.renew()
    whole = database({"203.0.113.0/24": country("FR")}, "GeoLite2-Country")
    path.write_bytes(whole[: len(whole) // 2])
    assert not source.renew()
    with pytest.raises(UnusableFileError):
        source.renew()
    assert not source.renew()
    assert places.find("203.0.113.1") == "DE"
    path.write_bytes(whole)
    assert not source.renew()
    assert places.find("203.0.113.1") == "DE"
    assert source.renew()
    assert places.find("203.0.113.1") == "FR"
    path.unlink()
    assert not source.renew()
    with pytest.raises(UnusableFileError):
        source.renew()
    assert places.find("203.0.113.1") == "FR"


def test_no_more_addresses_are_remembered_than_said(tmp_path: Path) -> None:
    """A client that has a whole network costs time, and no memory."""
    path = tmp_path / "country.mmdb"
    write_countries(path, {"2001:db8::/32": "JP"})
    places = _loaded(path)
    for number in range(geoip.CACHE + 100):
        places.find(f"2001:db8::{number:x}")
    assert places.find.cache_info().currsize == geoip.CACHE  # type: ignore[attr-defined]


async def test_middlewares_look_addresses_up(tmp_path: Path) -> None:
    """As the gateway does."""
    path = tmp_path / "country.mmdb"
    write_countries(path, {"203.0.113.0/24": "DE", "2001:db8::/32": "DE"})
    policy = {"limit": "1/h per country", "if_missing": "skip"}
    config = {"geoip": {"country": str(path)}, "policies": {"land": policy}}
    async with Limiter.from_mapping(config) as limiter:
        guard = Guard(limiter, "land")
        refused = [
            (await guard.admit(Head(peer, "GET", "/", "", CIMultiDict()))).answer is not None
            for peer in ("203.0.113.1", "2001:db8::1", "192.0.2.1", "192.0.2.1")
        ]
    assert refused == [False, True, False, False]


CONFIG = """
geoip: {{ country: '{file}', asn: '{file}' }}
routes:
  /: {{ respond: ok, limit: 1/h per {key} }}
"""


def test_the_library_is_needed_only_by_those_who_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it, the message has the command that installs it."""
    monkeypatch.setattr(geoip, "LIBRARY", "no_such_library")
    needs = check_text(CONFIG.format(file="x.mmdb", key="country"), file="text").config
    with pytest.raises(StartError) as raised:
        require_reader(needs)
    assert "no_such_library" in raised.value.message
    assert "pip install" in raised.value.hint
    require_reader(check_text(CONFIG.format(file="x.mmdb", key="ip"), file="text").config)


def test_the_check_reads_databases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those that are used, unless the library is missing where it runs."""
    path = tmp_path / "country.mmdb"
    config = check_text(CONFIG.format(file=path, key="country"), file="text").config
    (finding,) = source_problems(config)
    assert finding.path == ("geoip", "country")
    assert f"{path} cannot be read" in finding.message
    write_countries(path, {"203.0.113.0/24": "DE"})
    assert list(source_problems(config)) == []
    path.unlink()
    monkeypatch.setattr(geoip, "LIBRARY", "no_such_library")
    assert list(source_problems(config)) == []
