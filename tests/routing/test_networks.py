"""Sets of networks give the answers of the standard library, which looks at one after the other."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.routing.networks import Network, NetworkList, NetworkSet


def _network(number: int, prefix: int, *, is_v6: bool) -> Network:
    if is_v6:
        return IPv6Network((number, prefix), strict=False)
    return IPv4Network((number & 0xFFFF_FFFF, prefix % 33), strict=False)


# Few bits differ, so that networks meet, and lie in each other.
NUMBERS = st.builds(
    lambda high, low: (0x2001_0DB8 + high << 96) + (high << 64) + low,
    st.integers(0, 3),
    st.integers(0, 40) | st.integers((1 << 64) - 8, (1 << 64) - 1) | st.integers(0, (1 << 64) - 1),
)
NETWORKS = st.builds(
    lambda number, prefix, is_v6: _network(number, prefix, is_v6=is_v6),
    NUMBERS,
    st.integers(0, 128) | st.integers(58, 70) | st.integers(120, 128),
    st.booleans(),
)


@given(networks=st.lists(NETWORKS, max_size=12), numbers=st.lists(NUMBERS, max_size=6))
@example([IPv4Network("10.0.0.0/9"), IPv4Network("10.128.0.0/9")], [10 << 24])
@example([IPv6Network("2001:db8::/64"), IPv6Network("2001:db8::/65")], [0x2001_0DB8 << 96])
def test_an_address_is_in_a_set_if_it_is_in_one_of_its_networks(
    networks: list[Network], numbers: list[int]
) -> None:
    """At the edges of all networks, just outside of them, and anywhere else."""
    found = NetworkSet(NetworkList(networks))
    addresses: list[IPv4Address | IPv6Address] = [IPv6Address(number) for number in numbers]
    addresses += [ip_address(number & 0xFFFF_FFFF) for number in numbers]
    for network in networks:
        for edge in (network.network_address, network.broadcast_address):
            addresses.append(edge)
            addresses += [
                type(edge)(int(edge) + step)
                for step in (-1, 1)
                if 0 <= int(edge) + step < 1 << network.max_prefixlen
            ]
    for address in addresses:
        expected = any(address in network for network in networks)
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            continue
        assert (str(address) in found) == expected, address


def test_ipv4_in_ipv6_is_ipv4() -> None:
    """As clients are counted."""
    found = NetworkSet(NetworkList([ip_network("192.0.2.0/24")]))
    for text in ("192.0.2.7", "::ffff:192.0.2.7", "64:ff9b::c000:207"):
        assert text in found
    for text in ("192.0.3.7", "::192.0.2.7", "unknown", "", "2001:db8::1"):
        assert text not in found
    # Who is behind NAT64 is in its networks as well.
    for network in ("64:ff9b::/96", "64:ff9b::c000:207/128", "::/0"):
        assert "64:ff9b::c000:207" in NetworkSet(NetworkList([ip_network(network)]))
    assert "192.0.2.7" not in NetworkSet(NetworkList([ip_network("::/0")]))


def test_many_networks_are_made_with_pauses() -> None:
    """So that a loop in another thread has its turn."""
    pauses: list[int] = []
    networks = NetworkList(IPv4Network((number << 8, 24)) for number in range(0, 20_000, 2))
    found = NetworkSet(networks, lambda: pauses.append(1))
    assert len(pauses) > 20
    assert "0.0.2.1" in found
    assert "0.0.3.1" not in found
