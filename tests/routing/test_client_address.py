"""Who the client is behind trusted proxies, and what it is counted by."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.client_address import ClientAddress

CLIENTS = ClientAddress([ip_network("10.0.0.0/8"), ip_network("fd00::/8")])
PROXY = "10.0.0.1"


@pytest.mark.parametrize(
    ("peer", "is_trusted"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("11.0.0.1", False),
        ("2001:db8::1", False),
        ("64:ff9b::10.1.2.3", False),
        ("", False),
        ("@sluice", False),
    ],
)
def test_trust_goes_by_network(peer: str, is_trusted: bool) -> None:
    """Addresses in the listed networks are trusted; other text never is."""
    assert CLIENTS.is_trusted(peer) is is_trusted


@pytest.mark.parametrize("peer", ["8.8.8.8", "2001:db8::1", "", "/run/client.sock"])
def test_peers_that_are_not_trusted_speak_for_themselves(peer: str) -> None:
    """What a stranger writes into its headers is not looked at."""
    assert CLIENTS.resolve(peer, ["1.2.3.4"], ["for=1.2.3.4"]) == peer


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        ([], PROXY),
        ([""], PROXY),
        (["1.2.3.4"], "1.2.3.4"),
        (["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
        (["6.6.6.6, 1.2.3.4, 10.0.0.2"], "1.2.3.4"),
        (["6.6.6.6", "1.2.3.4", "10.0.0.2"], "1.2.3.4"),
        (["1.2.3.4", "10.9.9.9,10.0.0.2"], "1.2.3.4"),
        (["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (["1.2.3.4, , ", " ,"], "1.2.3.4"),
        (["1.2.3.4:55"], "1.2.3.4"),
        (["[2001:DB8::1]:443"], "2001:db8::1"),
        (["[2001:db8::1]"], "2001:db8::1"),
        (["2001:db8:0::1"], "2001:db8::1"),
        (["::ffff:1.2.3.4"], "1.2.3.4"),
        (["1.2.3.4, unknown"], PROXY),
        (["1.2.3.4, _hid, 10.0.0.2"], "10.0.0.2"),
        (["1.2.3.4, 01.2.3.4"], PROXY),
        (["1.2.3.4, [::1"], PROXY),
        (["1.2.3.4, []:80"], PROXY),
        (["1.2.3.4, fe80::1%eth0"], PROXY),
        (["1.2.3.4, \udcff"], PROXY),
        (["1.2.3.4, " + "9" * 9000], PROXY),
    ],
)
def test_the_first_stranger_from_the_end_is_the_client(lines: list[str], client: str) -> None:
    """The joined list is walked backwards, past trusted proxies, until nonsense ends it."""
    assert CLIENTS.resolve(PROXY, lines) == client


@pytest.mark.parametrize(
    ("lines", "client"),
    [
        (["for=1.2.3.4"], "1.2.3.4"),
        (['For="[2001:db8::1]:443";proto=https;by=10.0.0.1'], "2001:db8::1"),
        (["proto=https ; for=1.2.3.4"], "1.2.3.4"),
        (["for=6.6.6.6, for=1.2.3.4", 'for=10.0.0.2;host="a,b"'], "1.2.3.4"),
        (['for=1.2.3.4;host="a,\\",b", for=10.0.0.2'], "1.2.3.4"),
        (['for="1.2.3.4:55"'], "1.2.3.4"),
        (["for=1.2.3.4, ,"], "1.2.3.4"),
        (['for="[::1]";proto=https, for=x;by=y;host="a,b"'], PROXY),
        (["for=1.2.3.4, for=unknown"], PROXY),
        (["for=1.2.3.4, for=_hidden"], PROXY),
        (["for=1.2.3.4, proto=https"], PROXY),
        (["for=1.2.3.4, for=5.6.7.8;for=6.6.6.6"], PROXY),
        (["for=1.2.3.4, 5.6.7.8"], PROXY),
        (['host="x;for=6.6.6.6", for=1.2.3.4'], "1.2.3.4"),
        (['host="for=6.6.6.6;";proto=https'], PROXY),
    ],
)
def test_forwarded_is_read_as_its_document_says(lines: list[str], client: str) -> None:
    """Quoted strings may hold commas and semicolons; only one `for` names the node."""
    assert CLIENTS.resolve(PROXY, [], lines) == client


@pytest.mark.parametrize("evil", ['for="', 'for="\\', 'host="a\\"', '"', 'for=6.6.6.6;x="'])
def test_an_open_quote_cannot_swallow_what_a_proxy_wrote(evil: str) -> None:
    """What stands before a proxy's own element has no influence on how that is read."""
    assert CLIENTS.resolve(PROXY, [], [f"{evil}, for=1.2.3.4"]) == "1.2.3.4"
    assert CLIENTS.resolve(PROXY, [], [evil, "for=1.2.3.4"]) == "1.2.3.4"


def test_one_field_is_enough() -> None:
    """Where X-Forwarded-For is present, Forwarded is not looked at."""
    assert CLIENTS.resolve(PROXY, ["1.2.3.4"], ["for=5.6.7.8"]) == "1.2.3.4"


def test_long_chains_end() -> None:
    """However many trusted addresses a list claims, only its end is looked at."""
    assert CLIENTS.resolve(PROXY, ["1.2.3.4" + ",10.0.0.2" * 1000]) == "10.0.0.2"
    assert CLIENTS.resolve(PROXY, [], ["for=1.2.3.4" + ",for=10.0.0.2" * 1000]) == "10.0.0.2"
    assert CLIENTS.resolve(PROXY, ["1.2.3.4" + "," * 10_000]) == PROXY


@pytest.mark.parametrize(
    ("address", "bucket"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("64:ff9b::1.2.3.4", "1.2.3.4"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", "unknown"),
        ("nonsense", "unknown"),
    ],
)
def test_buckets(address: str, bucket: str) -> None:
    """IPv4 is counted by address, however it is wrapped; IPv6 by its network."""
    assert CLIENTS.bucket(address) == bucket


@pytest.mark.parametrize(
    ("prefix", "bucket"), [(48, "2001:db8:1::/48"), (56, "2001:db8:1::/56"), (128, "2001:db8:1::2")]
)
def test_the_length_of_the_prefix_is_configurable(prefix: int, bucket: str) -> None:
    """At 128 bits, every address counts separately."""
    assert ClientAddress([], ipv6_prefix=prefix).bucket("2001:db8:1::2") == bucket


@pytest.mark.parametrize("prefix", [0, 129])
def test_impossible_prefixes_are_refused(prefix: int) -> None:
    """A prefix has 1 to 128 bits."""
    with pytest.raises(ValueError, match="prefix"):
        ClientAddress([], ipv6_prefix=prefix)


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**64 - 1))
def test_addresses_of_one_network_share_a_bucket(number: int, host: int) -> None:
    """No client gets another bucket by changing the lower half of an IPv6 address."""
    first = IPv6Address(number)
    second = IPv6Address((number >> 64 << 64) | host)
    wrapped = {first.packed[:12], second.packed[:12]} & {
        bytes(10) + b"\xff\xff",
        ip_address("64:ff9b::").packed[:12],
    }
    same = CLIENTS.bucket(str(first)) == CLIENTS.bucket(str(second))
    assert same or wrapped


@given(st.lists(st.text(max_size=30), max_size=5), st.ip_addresses(v=4))
def test_nothing_a_client_writes_changes_what_a_proxy_says(
    lines: list[str], client: IPv4Address
) -> None:
    """Whatever comes first, the last address that a trusted proxy wrote is the client's."""
    if CLIENTS.is_trusted(str(client)):
        return
    assert CLIENTS.resolve(PROXY, [*lines, str(client)]) == str(client)
    assert CLIENTS.resolve(PROXY, [], [*lines, f"for={client}"]) == str(client)


@given(st.lists(st.text(max_size=60)), st.lists(st.text('for=";,\\ [1.:]a', max_size=60)))
def test_any_list_gives_an_address(forwarded_for: list[str], forwarded: list[str]) -> None:
    """No list raises, and the result is always an address."""
    ip_address(CLIENTS.resolve(PROXY, forwarded_for))
    ip_address(CLIENTS.resolve(PROXY, [], forwarded))
