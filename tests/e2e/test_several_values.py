"""Requests with several values of what they are counted by get round no limit."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.raw import RecordingUpstream, get
from tests.processes import Gateway

CONFIG = """
policies:
  key: {{ limit: 1/h per header:X-API-Key, if_missing: {if_missing} }}
  query: {{ limit: 1/h per query:api_key, if_missing: {if_missing} }}
  cookie: {{ limit: 1/h per cookie:sid, if_missing: {if_missing} }}
  pair: {{ limit: 1/h per cookie:a+cookie:b, if_missing: {if_missing} }}
routes:
  /key: {{ upstream: {url}, policies: key }}
  /query: {{ upstream: {url}, policies: query }}
  /cookie: {{ upstream: {url}, policies: cookie }}
  /pair: {{ upstream: {url}, policies: pair }}
  /tier:
    - {{ headers: {{ X-Tier: free }}, upstream: {url}, limit: 1/h per all }}
    - {{ upstream: {url} }}
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[RecordingUpstream]:
    """What all routes lead to."""
    with RecordingUpstream() as recording:
        yield recording


@pytest.fixture(scope="module", params=["skip", "ip", "shared", "reject"])
def gateway(
    request: pytest.FixtureRequest,
    upstream: RecordingUpstream,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    """One gateway for each word of `if_missing`."""
    folder = tmp_path_factory.mktemp("several")
    gateway = Gateway.start(CONFIG.format(url=upstream.url, if_missing=request.param), folder)
    yield gateway
    gateway.stop()


def statuses(gateway: Gateway, path: str, *heads: tuple[str, ...]) -> list[int]:
    """How requests with these fields are answered, in turn."""
    return [get(gateway.port, path, *fields).status for fields in heads]


def test_two_lines_of_a_header_that_differ(gateway: Gateway, upstream: RecordingUpstream) -> None:
    """400, in either order and beside an empty one; equal lines are one."""
    one, other, empty = "X-API-Key: k1", "X-API-Key: zz", "X-API-Key:"
    assert statuses(gateway, "/key", (one,), (one,)) == [200, 429]
    before = len(upstream.heads)
    assert statuses(gateway, "/key", (one, other), (other, one), (one, empty), (empty, one)) == (
        [400] * 4
    )
    assert len(upstream.heads) == before
    assert statuses(gateway, "/key", (one, one), ("x-api-key: k1", one)) == [429, 429]
    title = json.loads(get(gateway.port, "/key", one, other).body)["title"]
    assert "several values" in title
    assert "header:x-api-key" in title


def test_another_spelling_of_a_name_is_no_value(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """What the upstream might take for the key does not reach it."""
    own = "X-API-Key: k2"
    assert statuses(gateway, "/key", (own, "X_API_Key: k3"), (own, "X_API_Key: k4")) == [200, 429]
    assert b"k3" not in upstream.heads[-1]


def test_two_query_parameters_that_differ(gateway: Gateway) -> None:
    """400, in whatever disguise one of them is; equal ones are one."""
    assert statuses(gateway, "/query?api_key=k1", (), ()) == [200, 429]
    for query in (
        *("api_key=k1&api_key=zz", "api_key=zz&api_key=k1", "api_key=k1&%61pi_key=zz"),
        *("api_key=&api_key=k1", "api_key=k1;api_key=zz", "x=1;api_key=k1", "API_KEY=k1"),
        *("api.key=k1", "api_key[]=k1", "api_key=k1&api%2ekey=zz"),
    ):
        assert statuses(gateway, f"/query?{query}", ()) == [400]
    for query in ("api_key=k1&x=1&api_key=%6b1", "%61pi_key=k1", "x=a;b&api_key=k1"):
        assert statuses(gateway, f"/query?{query}", ()) == [429]


def test_each_value_of_a_cookie_is_spent(gateway: Gateway, upstream: RecordingUpstream) -> None:
    """Browsers send doubles: the first such request passes, and then none with any of them."""
    both = "Cookie: sid=a; x=1; sid=b"
    assert statuses(gateway, "/cookie", (both,)) == [200]
    assert upstream.heads[-1].count(both.encode()) == 1
    others = [(f"Cookie: sid={value}",) for value in ("a", "b", '"b"', "c; sid=b", "a; sid=c")]
    assert statuses(gateway, "/cookie", *others) == [429] * len(others)
    # All are spent or none: what was refused with the others has its own still.
    assert statuses(gateway, "/cookie", ("Cookie: sid=c",)) == [200]
    lines = ("Cookie: sid=d", "Cookie: sid=e")
    assert statuses(gateway, "/cookie", lines, ("Cookie: sid=e",)) == [200, 429]


def test_too_many_values_of_a_cookie(gateway: Gateway) -> None:
    """Four are spent, five are refused, and spend nothing."""
    four = "; ".join(f"sid=f{number}" for number in range(4))
    assert statuses(gateway, "/cookie", (f"Cookie: {four}; sid=f4",)) == [400]
    assert statuses(gateway, "/cookie", (f"Cookie: {four}; sid=f3",)) == [200]
    assert statuses(gateway, "/cookie", ("Cookie: sid=f3",), ("Cookie: sid=f4",)) == [429, 200]


def test_combinations_of_cookies_are_spent(gateway: Gateway) -> None:
    """Each pair, as long as these are four at the most."""
    four = "Cookie: a=1; a=2; b=1; b=2"
    assert statuses(gateway, "/pair", (four,), ("Cookie: a=2; b=1",)) == [200, 429]
    assert statuses(gateway, "/pair", ("Cookie: a=3; a=4; a=5; b=1; b=2",)) == [400]


def test_fields_of_the_answer_tell_of_the_tightest(gateway: Gateway) -> None:
    """One line and one item of each limit, however many cookies there are."""
    assert statuses(gateway, "/cookie", ("Cookie: sid=g",)) == [200]
    refused = get(gateway.port, "/cookie", "Cookie: sid=h; sid=g; sid=i")
    assert (refused.status, refused.field("X-RateLimit-Remaining")) == (429, "0")
    assert refused.field("RateLimit").count('"cookie"') == 1
    assert refused.field("RateLimit-Policy").count('"cookie"') == 1
    passed = get(gateway.port, "/cookie", "Cookie: sid=j; sid=k")
    assert passed.field("RateLimit").count('"cookie"') == 1


def test_a_header_that_routes_look_at_has_one_value(gateway: Gateway) -> None:
    """A second line leads nobody past the limit of a route."""
    free, made_up = "X-Tier: free", "X-Tier: other"
    assert statuses(gateway, "/tier", (free, made_up), (made_up, free), (free, "X-Tier:")) == (
        [400] * 3
    )
    assert statuses(gateway, "/tier", (free, free), (free,), (made_up,)) == [200, 429, 200]
