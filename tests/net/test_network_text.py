"""Networks are read as the standard library reads them, or left to it."""

from __future__ import annotations

from ipaddress import IPv6Network

from hypothesis import given

from gateway.net.network_text import add_usual
from gateway.routing.networks import Network, NetworkList
from tests.routing.test_networks import NETWORKS


@given(NETWORKS)
def test_usual_spellings_are_read_without_the_standard_library(network: Network) -> None:
    """And mean the same."""
    read, expected = NetworkList(), NetworkList([network])
    if not add_usual(read, str(network)):
        # Mapped ones are left to others.
        assert isinstance(network, IPv6Network)
        assert network.network_address.ipv4_mapped is not None
        return
    assert (read.v4, read.wide, read.narrow) == (expected.v4, expected.wide, expected.narrow)


def test_other_spellings_are_left_to_others() -> None:
    """Whether they are errors or not."""
    for text in (
        *("10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/ 8", "10.0.0.0/+8", "010.0.0.1"),
        *("10.0.0", "::1/0", "::ffff:10.0.0.1", "fe80::1%eth0", "", "office", "10.0.0.0/08", "\0"),
    ):
        found = NetworkList()
        assert not add_usual(found, text)
        assert len(found) == 0
