"""What an upstream says of limits of its own, beside what the gateway says."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.raw import Answer, RawConnection, RawUpstream, get
from tests.processes import Gateway

THEIRS = (
    b"X-RateLimit-Limit: 5550\r\nx-ratelimit-remaining: 5551\r\nX-RATELIMIT-Reset: 5552\r\n"
    b'X-RateLimit-Used: 5553\r\nRateLimit-Policy: "theirs";q=5550;w=60\r\n'
    b'ratelimit: "theirs";r=5551;t=60\r\nRateLimit-Limit: 5550\r\nX-Kept: yes\r\n'
)
LEGACY = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
DRAFT = ("RateLimit-Policy", "RateLimit")

ROUTES = """
policies:
  both: {{ limit: 9/h, headers: both }}
  draft: {{ limit: 9/h, headers: draft }}
  legacy: {{ limit: 9/h, headers: legacy }}
  few: {{ limit: 1/h }}
  merged: {{ limit: 9/h }}
  full: {{ limit: 9000/h burst 9000 }}
  none: {{ limit: 9/h, headers: none }}
  throttlex:
    throttlex: {{ type: TOKEN_BUCKET, capacity: 9, refillRate: 1 }}
  skip: {{ limit: "9/h per header:X-Key", if_missing: skip }}
routes:
  /free: {{ upstream: {url} }}
  /both: {{ upstream: {url}, policies: both }}
  /draft: {{ upstream: {url}, policies: draft }}
  /legacy: {{ upstream: {url}, policies: legacy }}
  /none: {{ upstream: {url}, policies: none }}
  /throttlex: {{ upstream: {url}, policies: throttlex }}
  /skip: {{ upstream: {url}, policies: skip }}
  /page:
    upstream: {url}
    policies: throttlex
    error_pages: {{ "503": {{ text: "Later.", intercept: true }} }}
  /keep: {{ upstream: {url}, policies: both, upstream_limits: keep }}
  /keep-draft: {{ upstream: {url}, policies: draft, upstream_limits: keep }}
  /keep-few: {{ upstream: {url}, policies: few, upstream_limits: keep }}
  /merge: {{ upstream: {url}, policies: merged, upstream_limits: merge }}
  /merge-draft: {{ upstream: {url}, policies: draft, upstream_limits: merge }}
  /merge-throttlex: {{ upstream: {url}, policies: throttlex, upstream_limits: merge }}
  /merge-full: {{ upstream: {url}, policies: full, upstream_limits: merge }}
  /dead: {{ upstream: dead, policies: throttlex }}
upstreams:
  dead: {{ targets: "http://127.0.0.1:1", breaker: {{ failures: 1%, min_requests: 1 }} }}
"""


def serve(connection: RawConnection) -> None:
    """Answer with limits of one's own, in every form that an answer can have."""
    while head := connection.read_head():
        if b"Upgrade: websocket" in head:
            connection.send(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\n" + THEIRS + b"\r\n"
            )
            return
        if b"GET /page" in head:
            line = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 77\r\n"
        else:
            line = b"HTTP/1.1 200 OK\r\n"
        if b"chunked" in head:
            connection.send(line + THEIRS + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
            connection.send(b"0\r\n\r\n")
        else:
            connection.send(line + THEIRS + b"Content-Length: 2\r\n\r\nok")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all cases."""
    with RawUpstream(serve) as upstream:
        folder = tmp_path_factory.mktemp("limits")
        gateway = Gateway.start(ROUTES.format(url=upstream.url), folder)
        yield gateway
        gateway.stop()


def limits_in(answer: Answer) -> dict[str, list[str]]:
    """The fields about limits, by their names in lower case."""
    names = {name.lower() for name, _ in answer.fields if "ratelimit" in name.lower()}
    return {name: answer.all(name) for name in names}


@pytest.mark.parametrize("how", ["whole", "chunked"])
@pytest.mark.parametrize(
    ("path", "ours", "theirs"),
    [
        ("/both", (*LEGACY, *DRAFT), ()),
        ("/draft", DRAFT, (*LEGACY, "X-RateLimit-Used")),
        ("/legacy", LEGACY, (*DRAFT, "RateLimit-Limit")),
        ("/throttlex", LEGACY[:2], (*DRAFT, "RateLimit-Limit")),
        ("/none", (), (*LEGACY, "X-RateLimit-Used", *DRAFT, "RateLimit-Limit")),
        ("/free", (), (*LEGACY, "X-RateLimit-Used", *DRAFT, "RateLimit-Limit")),
        ("/skip", (), (*LEGACY, "X-RateLimit-Used", *DRAFT, "RateLimit-Limit")),
        ("/keep", (), (*LEGACY, "X-RateLimit-Used", *DRAFT, "RateLimit-Limit")),
        ("/keep-draft", (), (*LEGACY, "X-RateLimit-Used", *DRAFT, "RateLimit-Limit")),
        ("/merge-throttlex", LEGACY[:2], (*DRAFT, "RateLimit-Limit")),
    ],
)
def test_each_name_is_there_once(
    gateway: Gateway, path: str, ours: tuple[str, ...], theirs: tuple[str, ...], how: str
) -> None:
    """Ours take the place of the upstream's, in any case; where we say nothing, its pass."""
    answer = get(gateway.port, path, f"X-How: {how}")
    found = limits_in(answer)
    assert found.keys() == {name.lower() for name in (*ours, *theirs)}
    for name, lines in found.items():
        assert len(lines) == 1, name
        assert ("555" in lines[0]) == (name in {one.lower() for one in theirs}), name
    assert answer.field("X-Kept") == "yes"


@pytest.mark.parametrize("how", ["whole", "chunked"])
def test_the_limits_of_both_are_merged(gateway: Gateway, how: str) -> None:
    """Each list has both; what has room for one is of the limit with less left."""
    answer = get(gateway.port, "/merge", f"X-How: {how}")
    assert answer.all("RateLimit-Policy") == ['"merged";q=9;w=3600, "theirs";q=5550;w=60']
    (state,) = answer.all("RateLimit")
    assert re.fullmatch(r'"merged";r=[0-8];t=3600, "theirs";r=5551;t=60', state)
    assert answer.all("X-RateLimit-Limit") == ["9"]
    assert limits_in(answer).keys() == {name.lower() for name in (*LEGACY, *DRAFT)}

    theirs = get(gateway.port, "/merge-full", f"X-How: {how}")
    assert theirs.all("X-RateLimit-Limit") == ["5550"]
    assert theirs.all("X-RateLimit-Remaining") == ["5551"]
    assert theirs.all("X-RateLimit-Used") == ["5553"]
    assert theirs.field("RateLimit").startswith('"full";r=8')

    other = get(gateway.port, "/merge-draft", f"X-How: {how}")
    assert limits_in(other).keys() == {
        name.lower() for name in (*LEGACY, *DRAFT, "X-RateLimit-Used")
    }


def test_a_refusal_has_only_the_gateways_own(gateway: Gateway) -> None:
    """The upstream was not asked."""
    first, answer = (get(gateway.port, "/keep-few") for _ in range(2))
    assert (first.status, answer.status) == (200, 429)
    assert limits_in(answer).keys() == {name.lower() for name in (*LEGACY, *DRAFT)}


def test_an_answer_that_opens_a_tunnel(gateway: Gateway) -> None:
    """The same holds for 101."""
    opening = ("Connection: Upgrade", "Upgrade: websocket")
    answer = get(gateway.port, "/both", *opening)
    assert answer.status == 101
    assert limits_in(answer).keys() == {name.lower() for name in (*LEGACY, *DRAFT)}
    assert {len(lines) for lines in limits_in(answer).values()} == {1}
    merged = get(gateway.port, "/merge", *opening)
    assert (merged.status, len(merged.all("RateLimit"))) == (101, 1)
    assert merged.field("RateLimit").endswith(', "theirs";r=5551;t=60')


def test_when_to_come_back_is_said_once(gateway: Gateway) -> None:
    """ThrottleX's answers always say it; an upstream's error, or its breaker, knows better."""
    page = get(gateway.port, "/page")
    assert (page.status, page.field("Retry-After")) == (503, "77")
    statuses = set()
    for _ in range(3):
        answer = get(gateway.port, "/dead")
        statuses.add(answer.status)
        assert len(answer.all("Retry-After")) == 1
    assert 503 in statuses
