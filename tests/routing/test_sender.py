"""What routes require of clients, and which requirement is part of another one."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from gateway.net.tls.peer import ClientCertificate
from gateway.routing.conditions import by_sender
from gateway.routing.lists import AddressList, Lists
from gateway.routing.networks import NetworkList, NetworkSet
from gateway.routing.sender import ANYONE, Sender, covers_members
from tests.routing.test_keys import Request

LISTS: Final[Lists] = {
    "office": AddressList(NetworkSet(NetworkList([ip_network("10.1.0.0/16")]))),
    "home": AddressList(NetworkSet(NetworkList([ip_network("10.1.2.0/24")]))),
}
_MEMBERS = [*map(ip_network, ("10.0.0.0/8", "10.1.2.0/24", "2001:db8::/32")), *LISTS]
_VALUES = st.sampled_from(["v1", "v*", "*1", "*", "w"])


def _pairs(*names: str) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    return st.dictionaries(st.sampled_from(names), _VALUES).map(lambda one: tuple(one.items()))


SENDERS = st.builds(
    Sender,
    st.lists(st.sampled_from(_MEMBERS), max_size=3).map(tuple),
    _pairs("a", "b"),
    _pairs("subject", "san"),
)
VIEWS = st.builds(
    lambda client, cookies, values: Request(
        client=client,
        headers=CIMultiDict({"Cookie": "; ".join(f"{name}={value}" for name, value in cookies)}),
        client_certificate=values and ClientCertificate(values[0], values[1], ""),
    ),
    st.sampled_from(["10.1.2.3", "10.1.9.9", "10.9.9.9", "2001:db8::1", "192.0.2.1", "unknown"]),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["v1", "v2", "w", ""])), max_size=3),
    st.none() | st.tuples(st.sampled_from(["v1", "v2", "w", ""]), st.sampled_from(["v1", ""])),
)


@given(SENDERS, SENDERS, VIEWS)
def test_what_is_covered_is_met(general: Sender, special: Sender, view: Request) -> None:
    """A request that meets the one meets every one that covers it."""
    if special != ANYONE and not by_sender(special, LISTS)(view):
        return
    if general.covers(special):
        assert general == ANYONE or by_sender(general, LISTS)(view)


@given(SENDERS, VIEWS)
def test_what_holds_in_every_reading_holds_in_one(sender: Sender, view: Request) -> None:
    """What certainly is one of those that a policy is only for may be one of them."""
    if sender != ANYONE and by_sender(sender, LISTS)(view):
        assert by_sender(sender, LISTS, in_doubt=True)(view)


def test_what_covers_what() -> None:
    """Networks by their addresses, lists by their names, and values as patterns."""
    large, small, other = _MEMBERS[:3]
    assert covers_members([large], [small])
    assert not covers_members([small], [large])
    assert not covers_members([large], [other])
    assert covers_members([large, "office"], ["office", small])
    assert not covers_members([large], ["office"])
    assert not covers_members([large], [])
    assert Sender((), (("a", "v*"),)).covers(Sender((), (("a", "v1"), ("b", "*"))))
    assert not Sender((), (("a", "v1"),)).covers(Sender((), (("a", "v*"),)))
    assert not Sender((), (), (("subject", "v1"),)).covers(Sender((), (("subject", "w"),)))


def test_conditions_are_counted() -> None:
    """Each cookie and each detail, and the client once, however many networks."""
    assert ANYONE.count == 0
    assert Sender(tuple(_MEMBERS), (("a", "*"), ("b", "*")), (("san", "*"),)).count == 4
