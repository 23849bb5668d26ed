"""Limits by a field of the body: the login name, before the upstream sees the request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.raw import OK, Answer, RawClient, RawConnection, RawUpstream, header_values
from tests.e2e.test_explain import explained
from tests.processes import Gateway

CONFIG = """
policies:
  login: {{ limit: 1/h per json:user, if_missing: reject }}
  inner: {{ limit: 1/h per json:user.name+ip, if_missing: skip }}
  form: {{ limit: 1/h per form:user, if_missing: unauthorized }}
  hidden: {{ limit: 1/h per json:user, secret: true }}
key_secret: 0123456789abcdef
server: {{ body_timeout: 2s }}
routes:
  /login: {{ upstream: {url}, policies: login }}
  /inner: {{ upstream: {url}, policies: inner }}
  /form: {{ upstream: {url}, policies: form }}
  /small: {{ upstream: {url}, policies: login, max_body: 100 }}
  /again: {{ upstream: {url}, policies: inner, retry: {{ tries: 2, when: 503, methods: any }} }}
  /hidden: {{ upstream: {url}, policies: hidden }}
  /open: {{ upstream: {url} }}
"""
JSON = "Content-Type: application/json"
FORM = "Content-Type: application/x-www-form-urlencoded"


class Echo(RawUpstream):
    """Remembers bodies, as they come, and fails once for a body that says so."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []
        super().__init__(self._answer)

    def _answer(self, connection: RawConnection) -> None:
        while head := connection.read_head():
            body = b""
            if header_values(head, "Transfer-Encoding"):
                while not body.endswith(b"0\r\n\r\n"):
                    body += connection.read_some()
            for size in header_values(head, "Content-Length"):
                body = connection.read_body(int(size))
            self.heads.append(head)
            self.bodies.append(body)
            if b"fail once" in body and self.bodies.count(body) == 1:
                connection.send(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            else:
                connection.send(OK)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Echo]:
    """What all routes lead to."""
    with Echo() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(upstream: Echo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose limits read bodies."""
    folder = tmp_path_factory.mktemp("bodies")
    gateway = Gateway.start(CONFIG.format(url=upstream.url), folder)
    yield gateway
    gateway.stop()


def post(gateway: Gateway, path: str, body: bytes, *fields: str) -> Answer:
    """Send a body, all at once."""
    with RawClient(gateway.port) as client:
        client.request(path, f"Content-Length: {len(body)}", *fields, method="POST")
        client.send(body)
        return client.read("POST")


def statuses(gateway: Gateway, path: str, *bodies: bytes, field: str = JSON) -> list[int]:
    """How requests with these bodies are answered, in turn."""
    return [post(gateway, path, body, field).status for body in bodies]


def test_each_name_has_its_own_count(gateway: Gateway, upstream: Echo) -> None:
    """However the body is written; it arrives byte for byte as it was sent."""
    bodies = [b'{"user": "ann", "password": "1"}', b' {"password":"2","user":"\\u0061nn"}']
    assert statuses(gateway, "/login", *bodies, b'{"user":"bob"}') == [200, 429, 200]
    assert upstream.bodies[-2:] == [bodies[0], b'{"user":"bob"}']
    assert statuses(gateway, "/inner", *[b'{"user":{"name":7}}'] * 2) == [200, 429]
    assert statuses(gateway, "/form", b"user=ann", b"x=1&user=%61nn", field=FORM) == [200, 429]
    assert statuses(gateway, "/form?users=1", b"user=u9", field=FORM) == [200]
    assert statuses(gateway, "/hidden", b'{"user":"ann"}', b'{"user":"ann"}') == [200, 429]


def test_what_can_be_read_in_two_ways_is_refused(gateway: Gateway, upstream: Echo) -> None:
    """A name twice, and whatever only some servers find; nothing of it reaches the upstream."""
    before = len(upstream.bodies)
    bodies = [b'{"user":"u1","user":"u2"}', b'{"user":"u1","User":"u2"}', b'{"USER":"u1"}']
    assert statuses(gateway, "/login", *bodies) == [400] * 3
    assert statuses(gateway, "/inner", b'{"user":{"name":1},"user":{"name":2}}') == [400]
    forms = [b"user=u1&user=u2", b"user[]=u1", b"USER=u1"]
    assert statuses(gateway, "/form", *forms, field=FORM) == [400] * 3
    # Many servers read the query and the form as one.
    for query in ("user=victim", "USER=victim", "a=1&user[]=victim"):
        assert statuses(gateway, f"/form?{query}", b"user=u9", field=FORM) == [400]
    assert post(gateway, "/login", b'{"user":"u3"}', JSON, FORM).status == 400
    title = json.loads(post(gateway, "/login", bodies[0], JSON).body)["title"]
    assert "several values" in title
    assert "json:user" in title
    assert len(upstream.bodies) == before


def test_a_body_without_the_field_lacks_a_key(gateway: Gateway, upstream: Echo) -> None:
    """So does one of another type, one that is no JSON, and one that is too large to look at."""
    large = b'{"user": "large", "x": "' + b"x" * 65_536 + b'"}'
    missing = [b"{}", b'{"user": ["ann"]}', b"not JSON", b"", large]
    assert statuses(gateway, "/login", *missing) == [400] * 5
    other = post(gateway, "/login", b'{"user":"zoe"}', "Content-Type: text/plain")
    assert other.status == 400
    assert "lacks" in json.loads(other.body)["title"]
    # Where such requests pass, they arrive whole.
    assert statuses(gateway, "/inner", *missing, *missing) == [200] * 10
    assert upstream.bodies[-5:] == missing
    with RawClient(gateway.port) as client:
        assert client.get("/inner").status == 200
        assert client.get("/login").status == 400
    assert post(gateway, "/form", b"user=", FORM).field("WWW-Authenticate").startswith("ApiKey")
    # Just as large as is looked at.
    least = b'{"user": "least", "x": ""}'
    edge = least[:-2] + b"x" * (65_536 - len(least)) + b'"}'
    assert len(edge) == 65_536
    assert statuses(gateway, "/login", edge, b'{"user":"least"}') == [200, 429]
    assert upstream.bodies[-1] == edge


def test_a_body_that_comes_in_pieces(gateway: Gateway, upstream: Echo) -> None:
    """The decision waits for it, chunked or not, and all of it is passed on."""
    body = b'{"user": "slow", "x": "' + b"y" * 30_000 + b'"}'
    with RawClient(gateway.port) as client:
        client.request("/login", JSON, f"Content-Length: {len(body)}", method="POST")
        for at in range(0, len(body), 7_000):
            client.send(body[at : at + 7_000])
        assert client.read("POST").status == 200
        assert upstream.bodies[-1] == body
        # The connection goes on; in chunks it is the same user.
        client.request("/login", JSON, "Transfer-Encoding: chunked", method="POST")
        for piece in (b'{"user"', b': "sl', b'ow"}'):
            client.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        client.send(b"0\r\n\r\n")
        assert client.read("POST").status == 429
        client.request("/inner", JSON, "Transfer-Encoding: chunked", method="POST")
        for _ in range(10):
            client.send(b"4000\r\n%b\r\n" % (b"z" * 0x4000))
        client.send(b"0\r\n\r\n")
        assert client.read("POST").status == 200
    assert upstream.bodies[-1].count(b"z") == 10 * 0x4000


def test_a_client_that_waits_to_be_asked(gateway: Gateway, upstream: Echo) -> None:
    """With `Expect`, it is told to send its body, since the decision needs it."""
    with RawClient(gateway.port) as client:
        client.request("/login", JSON, "Expect: 100-continue", "Content-Length: 15", method="POST")
        assert client.sock.recv(25).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.send(b'{"user":"meek"}')
        answer = client.read("POST")
    assert answer.status == 200
    assert upstream.bodies[-1] == b'{"user":"meek"}'


def test_a_body_is_sent_again_when_it_is_tried_again(gateway: Gateway, upstream: Echo) -> None:
    """What was looked at is kept like any other body."""
    body = b'{"user": {"name": "fail once"}}'
    assert statuses(gateway, "/again", body) == [200]
    assert upstream.bodies[-2:] == [body, body]


def test_limits_of_the_body_stay(gateway: Gateway) -> None:
    """`max_body` is the route's; what does not come is waited for no longer than anywhere."""
    assert statuses(gateway, "/small", b'{"user": "huge"%b}' % (b" " * 200)) == [413]


def test_what_is_no_body_is_refused(gateway: Gateway, upstream: Echo) -> None:
    """Chunks that are none get 400 and what does not come 408, before anything is counted."""
    before = len(upstream.heads)
    for path in ("/login", "/inner"):
        with RawClient(gateway.port) as client:
            client.request(path, JSON, "Transfer-Encoding: chunked", method="POST")
            client.send(b'8\r\n{"user":\r\nnothing\r\n')
            assert client.read("POST").status == 400
        with RawClient(gateway.port) as client:
            client.request(path, JSON, "Content-Length: 17", method="POST")
            client.send(b'{"user":')
            assert client.read("POST").status == 408
    assert len(upstream.heads) == before
    assert statuses(gateway, "/login", b'{"user":"nothing"}') == [200]


def test_a_client_that_leaves_is_forgotten(gateway: Gateway, upstream: Echo) -> None:
    """Amid its body, before the decision: nothing was counted, and nothing is forwarded."""
    before = len(upstream.heads)
    with RawClient(gateway.port) as client:
        client.request("/login", JSON, "Content-Length: 100", method="POST")
        client.send(b'{"user": "gone",')
    assert statuses(gateway, "/login", b'{"user":"gone"}') == [200]
    assert len(upstream.heads) == before + 1


def test_over_http_2(upstream: Echo, tmp_path: Path) -> None:
    """In frames, with or without an announced length: the same keys, and the same bytes."""
    gateway = Gateway.start(CONFIG.format(url=upstream.url), tmp_path, listener="http2: true")
    large = b'{"user":"two","x":"' + b"x" * 200_000 + b'"}'
    try:
        with httpx.Client(http1=False, http2=True, timeout=30) as client:

            def ask(path: str, content: bytes | Iterator[bytes]) -> int:
                fields = {"Content-Type": "application/json"}
                url = f"{gateway.url}{path}"
                return client.post(url, content=content, headers=fields).status_code

            assert ask("/login", b'{"user":"two"}') == 200
            assert ask("/login", iter([b'{"us', b'er":"t', b'wo"}'])) == 429
            assert ask("/login", large) == 400
            assert ask("/inner", large) == 200
        assert upstream.bodies[-1] == large
    finally:
        gateway.stop()


def test_explain_takes_a_body(gateway: Gateway, tmp_path: Path) -> None:
    """It says which key it has."""
    file = tmp_path / "sluice.yaml"
    file.write_text(CONFIG.format(url="http://127.0.0.1:9000"))
    told = explained(file, "/login", "-H", JSON, "--data", '{"user": "ann"}')
    assert "    Key: json:user=ann. Cost: 1." in told
    told = explained(file, "POST", "/login", "-H", JSON)
    assert "The request lacks what it is counted by: json:user." in told


def test_pipelined_requests_keep_their_order(gateway: Gateway, upstream: Echo) -> None:
    """What follows a body is the next request."""
    first, second = b'{"user":"p1"}', b'{"user":"p2"}'
    with RawClient(gateway.port) as client:
        for body in (first, second):
            head = (
                f"POST /login HTTP/1.1\r\nHost: a\r\n{JSON}\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            client.send(head.encode() + body)
        received = b""
        while received.count(b"HTTP/1.1 200 OK") < 2:
            received += client.sock.recv(1 << 16)
    assert upstream.bodies[-2:] == [first, second]
