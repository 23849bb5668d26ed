"""Limits that count by a segment of the path: every spelling of it is one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2e.raw import RecordingUpstream, get
from tests.processes import Gateway

CONFIG = """
policies:
  user: {{ limit: 1/h per path:id, if_missing: skip }}
routes:
  /users/{{id}}/**: {{ upstream: {url}, policies: user }}
  /clubs/{{club}}/members/{{id}}: {{ upstream: {url}, policies: user, strip_prefix: /clubs }}
  /pairs/{{a}}/{{b}}: {{ upstream: {url}, limit: 1/h per path:a+path:b }}
"""


@pytest.fixture(scope="module")
def upstream() -> Iterator[RecordingUpstream]:
    """What all routes lead to."""
    with RecordingUpstream() as recording:
        yield recording


@pytest.fixture(scope="module")
def gateway(
    upstream: RecordingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway whose limits count by segments."""
    folder = tmp_path_factory.mktemp("paths")
    gateway = Gateway.start(CONFIG.format(url=upstream.url), folder)
    yield gateway
    gateway.stop()


def statuses(gateway: Gateway, *paths: str) -> list[int]:
    """How requests for these paths are answered, in turn."""
    return [get(gateway.port, path).status for path in paths]


def test_each_value_has_its_own_count(gateway: Gateway) -> None:
    """Whatever follows the segment; two routes that share the policy share the counts."""
    assert statuses(gateway, "/users/1", "/users/2", "/users/1/orders", "/users/2/") == (
        [200, 200, 429, 429]
    )
    assert statuses(gateway, "/clubs/9/members/1", "/clubs/9/members/3", "/users/3") == (
        [429, 200, 429]
    )


def test_spellings_of_a_segment_are_one(gateway: Gateway) -> None:
    """Escapes of letters, and escapes in small letters, give no fresh count."""
    assert statuses(gateway, "/users/ann%C3%A9", "/users/%61nn%c3%a9", "/users/a%6En%C3%A9/x") == (
        [200, 429, 429]
    )
    # A case, an escape of an escape and another path are other users.
    assert statuses(gateway, "/users/Ann", "/users/ann", "/users/%2561nn") == [200, 200, 200]


def test_a_segment_that_can_be_read_in_two_ways_is_refused(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """400, whatever `if_missing` says: a part of the path must not make a user."""
    before = len(upstream.heads)
    paths = ["/users/4%2Fa", "/users/4%2fb/c", "/users/4;v=1", "/users/4;v=2/x", "/users/x/../4"]
    assert statuses(gateway, *paths) == [400] * len(paths)
    assert len(upstream.heads) == before
    title = json.loads(get(gateway.port, "/users/4%2Fa").body)["title"]
    assert "path:id" in title
    # What follows it may be read in any way.
    assert statuses(gateway, "/users/4/a%2Fb;c", "/users/4") == [200, 429]


def test_combinations_do_not_collide(gateway: Gateway) -> None:
    """No segment is read as the border between two."""
    paths = ["/pairs/a/b", "/pairs/a%7Cpath:b=b/c", "/pairs/a%3Db/c", "/pairs/a/b%3Dc"]
    assert statuses(gateway, *paths) == [200] * len(paths)
    assert statuses(gateway, *paths) == [429] * len(paths)
