"""What can be written as the pattern of a route."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.routing.pattern import PathShape, Pattern, shadowed
from gateway.routing.sender import Sender


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/", PathShape(("",), is_prefix=False)),
        ("/**", PathShape((), is_prefix=True)),
        ("/v1/pay", PathShape(("v1", "pay"), is_prefix=False)),
        ("/v1/", PathShape(("v1", ""), is_prefix=False)),
        ("/v1/**", PathShape(("v1",), is_prefix=True)),
        ("/u/{id}/x", PathShape(("u", None, "x"), is_prefix=False)),
        ("/u/{id}/**", PathShape(("u", None), is_prefix=True)),
        ("/caf\xe9", PathShape(("caf%C3%A9",), is_prefix=False)),
        ("/%7euser/a", PathShape(("~user", "a"), is_prefix=False)),
        ("/a b", PathShape(("a%20b",), is_prefix=False)),
        ("/%2A", PathShape(("*",), is_prefix=False)),
    ],
)
def test_paths_are_compiled_in_canonical_form(path: str, shape: PathShape) -> None:
    """Literals are normalised as requests are, so that they can meet."""
    assert Pattern(None, path).shape == shape


@pytest.mark.parametrize(
    "path",
    [
        "",
        "v1",
        "/a//b",
        "//**",
        "/a/../b",
        "/a/./b",
        "/%2e/a",
        "/a/%2e%2e",
        "/**/a",
        "/a**",
        "/*",
        "/a*b/**/c",
        "/{",
        "/a{id}",
        "/{id}.json",
        "/{}",
        "/%zz",
        "/a?b",
        "/a#b",
        "/a\\b",
        "/a%2fb",
        "/a;b/**",
        "/a\x00",
    ],
)
def test_paths_that_could_never_match_are_refused(path: str) -> None:
    """A pattern that no request can fit is an error when it is written, not a dead route."""
    with pytest.raises(ValueError, match=r".+"):
        Pattern(None, path)


@pytest.mark.parametrize("host", ["", "*", "*.", "a.*", "a.test:80", "[::1]:80", "a/b", "**.a"])
def test_hosts_that_could_never_match_are_refused(host: str) -> None:
    """Hosts are names, addresses or `*.name`, without ports."""
    with pytest.raises(ValueError, match=r"host|port"):
        Pattern(host, "/")


@pytest.mark.parametrize(
    ("host", "site"),
    [(None, ""), ("A.Test.", "a.test"), ("*.A.test", ".a.test"), ("[::0:1]", "[::1]")],
)
def test_hosts_are_compiled_in_normal_form(host: str | None, site: str) -> None:
    """Hosts are normalised as those of requests are."""
    assert Pattern(host, "/").site == site


def _shadowed(*patterns: Pattern) -> list[tuple[int, int]]:
    return shadowed([(pattern, None) for pattern in patterns])


def test_equal_patterns_shadow() -> None:
    """Of equal patterns only the first is ever reached, whatever the spelling."""
    assert _shadowed(Pattern(None, "/a"), Pattern(None, "/%61")) == [(1, 0)]
    assert _shadowed(Pattern("A.test", "/{x}"), Pattern("a.test", "/{y}")) == [(1, 0)]
    assert _shadowed(Pattern(None, "/"), Pattern(None, "/"), Pattern(None, "/")) == [(1, 0), (2, 0)]


def test_covered_conditions_shadow() -> None:
    """A route that asks less, and comes first, takes what one that asks more would match."""
    both = Pattern(None, "/", ("GET", "POST"))
    get = Pattern(None, "/", ("GET",))
    present = Pattern(None, "/", (), (("X-V", "*"),))
    equal = Pattern(None, "/", (), (("x-v", "1"),))
    assert _shadowed(both, get) == [(1, 0)]
    assert _shadowed(present, equal) == [(1, 0)]
    assert _shadowed(get, both) == []
    assert _shadowed(equal, present) == []


def test_senders_shadow_one_another() -> None:
    """Of two networks, the larger one takes all requests, if it comes first."""
    large, small = (
        Pattern(None, "/", sender=Sender((ip_network(text),)))
        for text in ("10.0.0.0/8", "10.1.0.0/16")
    )
    both = Pattern(None, "/", sender=Sender(large.sender.clients, (("beta", "*"),)))
    assert _shadowed(large, small) == [(1, 0)]
    assert _shadowed(small, large) == []
    # It has more conditions, so it comes first.
    assert _shadowed(large, both) == []
    assert _shadowed(both, large) == []


def test_more_specific_routes_are_not_shadowed() -> None:
    """What is tried first is reached, wherever it is written."""
    assert _shadowed(Pattern(None, "/"), Pattern(None, "/", ("GET",))) == []
    assert _shadowed(Pattern(None, "/**"), Pattern(None, "/a"), Pattern("a.test", "/**")) == []
