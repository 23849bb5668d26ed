"""Which hosts a connection is for."""

from __future__ import annotations

import pytest

from gateway.proxy.client.http2.authority import HostCheck


class Names:
    """TLS of a connection whose certificate has some names."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked = 0

    def covers(self, host: str, /) -> bool:
        """Whether it is one of the names."""
        self.asked += 1
        return host in self.names


@pytest.mark.parametrize(
    ("authority", "is_misdirected"),
    [
        ("a.test", False),
        ("a.test:8080", False),
        ("a.test:", False),
        ("a.test:443", False),
        ("b.test", True),
        ("", True),
        ("a.test:9443", True),
        ("[::1]", False),
        ("[::1]:9443", True),
        ("[::2]", True),
        ("a.test:99999999", False),
        ("a.test:x", False),
    ],
)
def test_authorities(authority: str, *, is_misdirected: bool) -> None:
    """The host must be covered; the port must not be that of a listener with other rules."""
    check = HostCheck(Names("a.test", "::1"))
    assert check.is_misdirected(authority, {9443}) == is_misdirected


def test_other_rules_are_looked_at_again() -> None:
    """What was right is remembered for as long as the rules are the same."""
    names = Names("a.test")
    check = HostCheck(names)
    before: frozenset[int] = frozenset()
    assert not check.is_misdirected("a.test", before)
    assert not check.is_misdirected("a.test", before)
    assert names.asked == 1
    assert check.is_misdirected("a.test", frozenset({443}))
