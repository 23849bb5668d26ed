"""What a route changes of the requests and answers that pass, through the front door."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.raw import RawClient, RawConnection, RecordingUpstream, get, header_values
from tests.processes import Gateway

ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: secret/1.0\r\nX_Powered_By: php\r\nX-Kept: yes\r\n"
    b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok"
)

ROUTES = """
trusted_proxies: [127.0.0.9]
server: {{ max_body: 100 }}
routes:
  /**: {{ upstream: {url} }}
  /api/**: {{ upstream: {url}, strip_prefix: /api }}
  /deep/er/**: {{ upstream: {url}, strip_prefix: /deep, add_prefix: /v2 }}
  /added/**: {{ upstream: {url}, add_prefix: /.well-known/x }}
  "/v1/{{id}}": {{ upstream: {url}, rewrite: "/v2/items/{{id}}" }}
  "/by/{{a}}/{{b}}/**": {{ upstream: {url}, rewrite: "/{{b}}/{{a}}/x/**" }}
  /one/**: {{ upstream: {url}, rewrite: /index.html }}
  /fields/**:
    upstream: {url}
    request_headers:
      set: {{ X-Team: blue, X-Via: "{{{{{{client_ip}}}}}} {{scheme}} {{header.x-in}}" }}
      add:
        X-More: "{{method}} {{host}} {{path}} {{query}} {{route}}"
        X-None: "{{header.x-none}}"
      remove: [X-Debug]
    response_headers:
      set: {{ Server: gateway, X-Asked: "{{path}}" }}
      add: {{ Set-Cookie: c=3 }}
      remove: X-Powered-By
  /target/**: {{ upstream: {url}, upstream_host: target }}
  /literal/**: {{ upstream: {url}, upstream_host: "api.example.com:8443" }}
  /small/**: {{ upstream: {url}, max_body: 10 }}
  /any/**: {{ upstream: {url}, max_body: off }}
  /limited/**:
    upstream: {url}
    limit: 1/h
    response_headers: {{ set: {{ X-Frame-Options: DENY }}, remove: [X-RateLimit-Limit] }}
"""


class Upstream(RecordingUpstream):
    """Answers bodies in chunks not before their end."""

    def _record(self, connection: RawConnection) -> None:
        while head := connection.read_head():
            self.heads.append(head)
            for size in header_values(head, "Content-Length"):
                connection.read_body(int(size))
            if header_values(head, "Transfer-Encoding"):
                body = b""
                while not body.endswith(b"0\r\n\r\n"):
                    piece = connection.read_body(1)
                    if not piece:
                        return
                    body += piece
            connection.send(self._answer)


@pytest.fixture(scope="module")
def upstream() -> Iterator[RecordingUpstream]:
    """What all routes lead to."""
    with Upstream(ANSWER) as recording:
        yield recording


@pytest.fixture(scope="module")
def gateway(
    upstream: RecordingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """One gateway for all cases."""
    folder = tmp_path_factory.mktemp("changing")
    gateway = Gateway.start(ROUTES.format(url=upstream.url), folder)
    yield gateway
    gateway.stop()


def _target(head: bytes) -> str:
    return head.split(b" ", 2)[1].decode("latin-1")


@pytest.mark.parametrize(
    ("asked", "received"),
    [
        ("/other/%41b;c=1//d?q=/api", "/other/%41b;c=1//d?q=/api"),
        ("/api", "/"),
        ("/api/", "/"),
        ("/api?x=1", "/?x=1"),
        ("/api/x/y?a=%2F&b", "/x/y?a=%2F&b"),
        ("/%61pi/x", "/x"),
        ("/api/%41%c3%bc", "/%41%c3%bc"),
        ("/api/a//b;c/%2F", "/a//b;c/%2F"),
        ("/api/a/../b", "/a/../b"),
        ("/deep/er/x", "/v2/er/x"),
        ("/added/x", "/.well-known/x/added/x"),
        ("/v1/7%2e5?full", "/v2/items/7%2e5?full"),
        ("/by/1/%32/c/d", "/%32/1/x/c/d"),
        ("/by/1/2", "/2/1/x"),
        ("/one/a/b?c", "/index.html?c"),
    ],
)
def test_paths_are_rewritten_byte_by_byte(
    gateway: Gateway, upstream: RecordingUpstream, asked: str, received: str
) -> None:
    """Whole segments are taken away or put in; all other bytes and the query stay."""
    assert get(gateway.port, asked).status == 200
    assert _target(upstream.heads[-1]) == received


@pytest.mark.parametrize(
    "asked",
    [
        "/api//x",
        "/api//evil.test/..%2f",
        "/api/../x",
        "/api/%2e%2e/x",
        "/./api/x",
        "//api/x",
        "/api;a=1/x",
        "/api/..;/x",
        "/x/../api/y",
        "/v1/a%2Fb",
        "/v1/a;b",
        "/by/1/2;x/c",
        "/by/a%2Fb/c/d",
    ],
)
def test_no_spelling_gets_around_a_rewrite(
    gateway: Gateway, upstream: RecordingUpstream, asked: str
) -> None:
    """A path that could be taken apart in several ways is refused, and nothing is forwarded."""
    before = len(upstream.heads)

    assert get(gateway.port, asked).status == 400
    assert len(upstream.heads) == before


@pytest.mark.parametrize("asked", ["/apix", "/api%2Fx", "/API/x"])
def test_a_prefix_is_stripped_at_the_end_of_a_segment_only(
    gateway: Gateway, upstream: RecordingUpstream, asked: str
) -> None:
    """What only begins with the same letters, or hides the slash, is never stripped."""
    before = len(upstream.heads)
    status = get(gateway.port, asked).status

    if status == 200:
        assert _target(upstream.heads[-1]) == asked
    else:
        assert (status, len(upstream.heads)) == (400, before)


def test_request_fields_are_set_added_and_removed(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """In any spelling; a value made of nothing is not sent, and none is decoded."""
    get(
        gateway.port,
        "/fields/a?q=%0d%0a",
        *("X_Team: red", "x-team: green", "X-Debug: 1", "X-In: {host} %0d%0a", "X-More: own"),
    )
    head = upstream.heads[-1]

    assert header_values(head, "X-Team") == ["blue"]
    assert header_values(head, "X_Team") == []
    assert header_values(head, "X-Debug") == []
    assert header_values(head, "X-Via") == ["{127.0.0.1} http {host} %0d%0a"]
    assert header_values(head, "X-More") == [
        "own",
        "GET gateway.test /fields/a q=%0d%0a /fields/**",
    ]
    assert header_values(head, "X-None") == []


def test_answer_fields_are_set_added_and_removed(gateway: Gateway) -> None:
    """Those of the upstream, in any spelling; the rest stays as it is."""
    answer = get(gateway.port, "/fields/x")

    assert answer.all("Server") == ["gateway"]
    assert answer.all("X-Asked") == ["/fields/x"]
    assert answer.all("X_Powered_By") == []
    assert answer.all("X-Kept") == ["yes"]
    assert answer.all("Set-Cookie") == ["a=1", "b=2", "c=3"]
    assert answer.body == b"ok"


def test_answers_of_the_gateway_itself_are_edited_too(gateway: Gateway) -> None:
    """A refusal has the fields that its route sets, and not those that it removes."""
    answers = [get(gateway.port, "/limited/x") for _ in range(3)]

    assert [answer.status for answer in answers] == [200, 429, 429]
    assert all(answer.all("X-Frame-Options") == ["DENY"] for answer in answers)
    assert all(answer.all("X-RateLimit-Limit") == [] for answer in answers)
    assert all(answer.all("X-RateLimit-Remaining") == ["0"] for answer in answers)


def test_routes_do_not_share_what_they_change(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """One connection that asks the same of several routes in turn: each has its own fields."""
    with RawClient(gateway.port) as client:
        for path in ("/fields/x", "/other", "/literal/x", "/fields/y", "/target/x", "/other"):
            client.get(path, "X-Team: red")
    heads = upstream.heads[-6:]

    teams = [header_values(head, "X-Team") for head in heads]
    assert teams == [["blue"], ["red"], ["red"], ["blue"], ["red"], ["red"]]
    hosts = [header_values(head, "Host") for head in heads]
    target = upstream.url.removeprefix("http://")
    own = ["gateway.test"]
    assert hosts == [own, own, ["api.example.com:8443"], own, [target], own]
    assert all(header_values(head, "X-Forwarded-Host") == own for head in heads)


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        ("/small/", 10, 200),
        ("/small/", 11, 413),
        ("/x", 100, 200),
        ("/x", 101, 413),
        ("/any/", 5000, 200),
    ],
)
def test_a_route_has_its_own_largest_body(
    gateway: Gateway, upstream: RecordingUpstream, path: str, size: int, status: int
) -> None:
    """Its own number rules, or the server's; too much that is announced reaches nobody."""
    before = len(upstream.heads)
    with RawClient(gateway.port) as client:
        client.request(path, f"Content-Length: {size}", method="POST")
        client.send(b"x" * size)

        assert client.read().status == status
    assert len(upstream.heads) - before == (status == 200)


def test_chunks_are_counted_as_they_come(gateway: Gateway) -> None:
    """A body without a length is refused when it has become too large, and the client with it."""
    with RawClient(gateway.port) as client:
        head = "POST /small/ HTTP/1.1\r\nHost: gateway.test\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.send(head.encode() + b"6\r\n123456\r\n6\r\n123456\r\n")

        assert client.read().status == 413
        assert client.has_ended()
