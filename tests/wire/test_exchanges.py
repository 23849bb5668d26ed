"""Exchanges in which one side does not wait for the other: uploads, `Expect`, half-closes.

One gateway serves them all; its upstream does what each test's script says.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest

from tests.e2e.raw import TIMEOUT_S
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import Gateway
from tests.wire.answers import GET, GET_1_0, HELLO, HINT, OK
from tests.wire.judge import Heard, StrictClient
from tests.wire.scripted import Asked, End, Pause, Read, Script, ScriptedOrigin, until

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
TOO_LARGE: Final = b"HTTP/1.1 413 Content Too Large\r\n" + HELLO
SOON_S: Final = 10.0
"""Far below any default timeout, far above what the machine's noise adds."""

_numbers = itertools.count()


@pytest.fixture(scope="module")
def origin() -> Iterator[ScriptedOrigin]:
    """The upstream of all tests."""
    with ScriptedOrigin({"/canary": (OK + HELLO,)}) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(origin: ScriptedOrigin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """The gateway of all tests, with short time limits and small rates under some paths."""
    hurry = "timeouts: { first_byte: 200ms, idle: 200ms }"
    running = Gateway.start(
        f"""
upstreams:
  u: {{ targets: '{origin.url}' }}
  hurried: {{ targets: '{origin.url}', {hurry} }}
routes:
  /**: {{ upstream: u }}
  /hurried/**: {{ upstream: hurried }}
  /once/a/**: {{ upstream: u, limit: 1/h burst 1 per all }}
  /once/b/**: {{ upstream: u, limit: 1/h burst 1 per all }}
  /queue/**:
    upstream: u
    limit: 2/s burst 1 per all
    queue: {{ max: 5, max_wait: 1h }}
""",
        tmp_path_factory.mktemp("gateway"),
    )
    yield running
    running.stop()


@pytest.fixture
def client(gateway: Gateway) -> Iterator[StrictClient]:
    """A connection of the test's own; afterwards the gateway serves as if nothing had been."""
    with StrictClient(gateway.port) as running:
        yield running
    with StrictClient(gateway.port) as other:
        heard = other.ask(GET % b"/canary")
        assert (heard.status, heard.body, heard.is_whole) == (200, b"hello", True)


Play = Callable[..., bytes]


@pytest.fixture
def play(origin: ScriptedOrigin) -> Play:
    """`play(*script, under="")` gives the path of a script."""

    def add(*script: object, under: str = "") -> bytes:
        path = f"{under}/play/{next(_numbers)}"
        steps: Script = script  # type: ignore[assignment]
        origin.scripts[path] = steps
        return path.encode()

    return add


def asked(origin: ScriptedOrigin, path: bytes) -> Asked:
    """The one request for a path."""
    (found,) = origin.all(path.decode())
    return found


def send_all(client: StrictClient, data: bytes) -> threading.Thread:
    """Send in a thread, as far as the gateway takes it."""

    def send() -> None:
        with suppress(OSError):
            client.send(data)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


# Answers before the request is there (D24, P29, P30).

MEGABYTES: Final = 10_000_000
UPLOADS: Final = {
    "length": b"Content-Length: %d\r\n\r\n" % MEGABYTES + b"x" * MEGABYTES,
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n"
    + (b"10000\r\n" + b"x" * 65536 + b"\r\n") * (MEGABYTES // 65536)
    + b"0\r\n\r\n",
}


@pytest.mark.parametrize("body", UPLOADS.values(), ids=UPLOADS)
@pytest.mark.parametrize(
    "then",
    [(), (Read.BODY,), (End.FIN,), (End.RST,), (Pause(0.02), End.FIN), (Pause(0.02), End.RST)],
    ids=["stops reading", "goes on reading", "closes", "resets", "closes later", "resets later"],
)
def test_an_early_answer_reaches_the_client(
    client: StrictClient, play: Play, body: bytes, then: Script
) -> None:
    """Whatever the upstream does with the rest of the upload, and with its connection."""
    wait = threading.Event()
    end = then or (wait,)
    path = play(Read.NOTHING, TOO_LARGE, *end)
    sending = send_all(client, b"POST %b HTTP/1.1\r\nHost: a\r\n" % path + body)
    heard = client.hear(b"POST")
    wait.set()
    assert (heard.status, heard.body, heard.is_whole) == (413, b"hello", True)
    sending.join()


def test_an_early_answer_in_pieces(client: StrictClient, play: Play) -> None:
    """It may come slowly, while the upload goes on."""
    path = play(
        Read.NOTHING,
        TOO_LARGE[:20],
        Pause(0.02),
        TOO_LARGE[20:-2],
        Pause(0.02),
        TOO_LARGE[-2:],
    )
    sending = send_all(client, b"POST %b HTTP/1.1\r\nHost: a\r\n" % path + UPLOADS["length"])
    heard = client.hear(b"POST")
    assert (heard.status, heard.body, heard.is_whole) == (413, b"hello", True)
    sending.join()


def test_an_early_answer_that_breaks_off_is_none(client: StrictClient, play: Play) -> None:
    """What was read behind a reset is no more than what had come."""
    path = play(Read.NOTHING, TOO_LARGE[:-1], End.RST)
    sending = send_all(client, b"POST %b HTTP/1.1\r\nHost: a\r\n" % path + UPLOADS["length"])
    heard = client.hear(b"POST")
    assert not heard.is_whole or heard.status == 502
    sending.join()


@pytest.mark.parametrize(
    "fields", [b"Content-Length: 4\r\n\r\nbody", b"\r\n"], ids=["body", "none"]
)
def test_an_answer_before_a_small_body(client: StrictClient, play: Play, fields: bytes) -> None:
    """A request that was sent as a whole is over with its answer, and so the connection goes on."""
    path = play(TOO_LARGE)
    for _ in range(2):
        heard = client.ask(b"POST %b HTTP/1.1\r\nHost: a\r\n" % path + fields)
        assert (heard.status, heard.body, heard.keeps_alive) == (413, b"hello", True)


# Expect: 100-continue (RFC 9110, section 10.1.1).

EXPECTING: Final = (
    b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
)


def hear_interim(client: StrictClient) -> bytes:
    """The next interim answer, as bytes."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += client.sock.recv(1)
    return data


def test_a_continue_is_the_upstreams(
    client: StrictClient, origin: ScriptedOrigin, play: Play
) -> None:
    """The head goes to the upstream at once, and nobody asks for the body before it does."""
    ready = threading.Event()
    path = play(Read.NOTHING, ready, CONTINUE, Read.BODY, OK + HELLO)
    client.send(EXPECTING % path)
    until(lambda: origin.all(path.decode()))
    assert b"\r\nExpect: 100-continue\r\n" in asked(origin, path).head
    client.sock.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.sock.recv(1)
    client.sock.settimeout(TIMEOUT_S)
    ready.set()
    assert hear_interim(client) == CONTINUE
    client.send(b"body")
    heard = client.hear(b"POST")
    assert (heard.status, heard.body, heard.keeps_alive) == (200, b"hello", True)
    assert asked(origin, path).body == b"body"


def test_a_final_answer_without_a_continue(client: StrictClient, play: Play) -> None:
    """The client need not send its body, and is told that the connection ends."""
    path = play(Read.NOTHING, TOO_LARGE)
    heard = client.ask(EXPECTING % path)
    assert (heard.interim, heard.status, heard.body) == ([], 413, b"hello")
    assert not heard.keeps_alive
    assert client.is_over()


def test_28_megabytes_that_nobody_wants(client: StrictClient, play: Play) -> None:
    """A client that does not wait for its 100 reads the refusal all the same."""
    size = 28_000_000
    path = play(Read.NOTHING, TOO_LARGE, End.FIN)
    head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n"
    sending = send_all(client, head % (path, size) + b"x" * size)
    heard = client.hear(b"POST")
    assert (heard.status, heard.body, heard.is_whole) == (413, b"hello", True)
    sending.join()


def test_an_upstream_that_ignores_the_question(
    client: StrictClient, origin: ScriptedOrigin, play: Play
) -> None:
    """The client sends its body when it is tired of waiting; nothing hangs."""
    path = play(OK + HELLO)
    client.send(EXPECTING % path)
    until(lambda: origin.all(path.decode()))
    client.send(b"body")
    heard = client.hear(b"POST")
    assert (heard.interim, heard.status, heard.keeps_alive) == ([], 200, True)
    assert asked(origin, path).body == b"body"


def test_a_refusal_comes_without_a_continue(
    client: StrictClient, origin: ScriptedOrigin, play: Play
) -> None:
    """The limits speak first: the upstream hears nothing, the client no 100."""
    path = play(OK + HELLO, under="/once/a")
    assert client.ask(GET % path).status == 200
    heard = client.ask(EXPECTING % path)
    assert (heard.interim, heard.status, heard.is_whole) == ([], 429, True)
    assert not heard.keeps_alive
    assert client.is_over()
    assert len(origin.all(path.decode())) == 1


def test_a_hint_comes_while_the_answer_is_waited_for(client: StrictClient, play: Play) -> None:
    """An interim answer is passed on at once (P28)."""
    ready = threading.Event()
    path = play(HINT, ready, OK + HELLO)
    client.send(GET % path)
    assert hear_interim(client) == HINT
    ready.set()
    heard = client.hear()
    assert (heard.status, heard.body, heard.keeps_alive) == (200, b"hello", True)


@pytest.mark.parametrize(
    ("field", "passed"),
    [
        (b"TE: trailers", True),
        (b"te: gzip;q=0.5, Trailers", True),
        (b"TE: gzip", False),
        (b"TE: xtrailers", False),
        (b"TE:", False),
        (b"X: trailers", False),
    ],
)
def test_a_wish_for_trailers_is_passed_on(
    client: StrictClient, origin: ScriptedOrigin, play: Play, field: bytes, passed: bool
) -> None:
    """In this gateway's own words, and nothing else of the field (RFC 9110, section 10.1.4)."""
    path = play(OK + HELLO)
    request = b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: TE\r\n%b\r\n\r\n"
    assert client.ask(request % (path, field)).status == 200
    head = asked(origin, path).head
    assert (b"\r\nConnection: TE\r\nTE: trailers\r\n" in head) == passed
    assert (b"\r\nte:" in head.lower()) == passed
    assert b"gzip" not in head


# Clients that end their side and still read (E08).

CHUNKED_POST: Final = (
    b"POST %b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
)
HALF_CLOSED: Final = {
    "GET": GET,
    "HTTP/1.0": GET_1_0,
    "POST": b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
    "chunks": CHUNKED_POST,
}


@pytest.mark.parametrize("request_", HALF_CLOSED.values(), ids=HALF_CLOSED)
@pytest.mark.parametrize("wait_s", [0.0, 0.05])
def test_a_client_that_ends_its_side_is_answered(
    client: StrictClient, play: Play, request_: bytes, wait_s: float
) -> None:
    """It has said all it had to say, and reads on."""
    client.send(request_ % play(Pause(wait_s), OK + HELLO))
    client.end()
    heard = client.hear(request_.split()[0])
    assert (heard.status, heard.body, heard.is_whole) == (200, b"hello", True)
    assert {status for status, _ in heard.interim} <= {100}
    assert client.is_over()


def test_it_may_have_asked_several_times(client: StrictClient, play: Play) -> None:
    """All whole requests are answered, in order; half a request is not."""
    paths = [play(Pause(0.02), OK + b"Content-Length: 1\r\n\r\n%d" % n) for n in range(3)]
    half = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf"
    client.send(b"".join(GET % path for path in paths) + half)
    client.end()
    assert [client.hear().body for _ in paths] == [b"0", b"1", b"2"]
    assert client.is_over()


def test_it_may_have_to_read_much(client: StrictClient, play: Play) -> None:
    """A body larger than all buffers arrives."""
    body = b"x" * 5_000_000
    client.send(GET % play(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body))
    client.end()
    time.sleep(0.05)
    heard = client.hear()
    assert (heard.status, heard.body == body, heard.is_whole) == (200, True, True)


def test_it_is_asked_whether_it_is_there(client: StrictClient, play: Play) -> None:
    """A slow answer comes behind a 100, which every client reads past."""
    ready = threading.Event()
    client.send(GET % play(ready, OK + HELLO))
    client.end()
    assert hear_interim(client) == CONTINUE
    ready.set()
    heard = client.hear()
    assert (heard.interim, heard.status, heard.body, heard.is_whole) == ([], 200, b"hello", True)
    assert client.is_over()


def test_it_waits_for_its_turn(client: StrictClient, play: Play) -> None:
    """A place in a queue is kept for it."""
    path = play(OK + HELLO, under="/queue")
    assert client.ask(GET % path).status == 200
    client.send(GET % path)
    client.end()
    heard = client.hear()
    assert (heard.status, heard.body, heard.is_whole) == (200, b"hello", True)


def test_it_may_read_slowly_what_comes_slowly(client: StrictClient, play: Play) -> None:
    """An answer of known length is brought to its end, whatever pauses it has."""
    first, rest = threading.Event(), threading.Event()
    path = play(OK + b"Content-Length: 5\r\n\r\nhe", first, b"ll", rest, b"o")
    client.send(GET % path)
    assert client.sock.recv(1) == b"H"
    client.end()
    # Longer than a stream without length would be kept.
    time.sleep(0.6)
    first.set()
    rest.set()
    client.sock.settimeout(TIMEOUT_S)
    data = b""
    while more := client.sock.recv(4096):
        data += more
    assert data.endswith(b"\r\n\r\nhello")


def ended_soon(origin: ScriptedOrigin, path: bytes, left: float) -> bool:
    """Whether the connection over which a path was asked for ends long before any timeout."""
    number = asked(origin, path).connection
    until(lambda: number in origin.ended)
    return origin.ended[number] - left < SOON_S


def test_who_leaves_a_silent_stream_ends_it(
    gateway: Gateway, origin: ScriptedOrigin, play: Play
) -> None:
    """Events may be hours apart: a client that closes ends the upstream's work now."""
    path = play(OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
    before = metric(gateway, "sluice_clients_left_total")
    with StrictClient(gateway.port) as client:
        client.send(GET % path)
        assert client.sock.recv(1) == b"H"
    left = time.monotonic()
    assert ended_soon(origin, path, left)
    assert wait_for_metric(gateway, "sluice_clients_left_total", before + 1)


# Requests in a row (E12, E14, E15, P41).


def test_answers_come_in_the_order_of_requests(client: StrictClient, play: Play) -> None:
    """However long the first takes, and whatever stands between."""
    slow = play(Pause(0.05), OK + b"Content-Length: 4\r\n\r\nslow")
    fast = play(OK + b"Content-Length: 4\r\n\r\nfast")
    client.send(GET % slow + CHUNKED_POST % fast + GET % fast + GET % slow)
    assert [client.hear().body for _ in range(4)] == [b"slow", b"fast", b"fast", b"slow"]


def test_a_refusal_keeps_its_place(
    client: StrictClient, origin: ScriptedOrigin, play: Play
) -> None:
    """A refused request among others: each has its own answer, and its body is nobody's request."""
    once = play(OK + HELLO, under="/once/b")
    other = play(OK + b"Content-Length: 5\r\n\r\nother")
    smuggled = GET % b"/never"
    post = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b"
    client.send(GET % once + GET % once + post % (other, len(smuggled), smuggled) + GET % other)
    heard = [client.hear() for _ in range(4)]
    assert [answer.status for answer in heard] == [200, 429, 200, 200]
    assert [answer.body for answer in heard[2:]] == [b"other", b"other"]
    assert not origin.all("/never")


def test_a_body_behind_head_is_no_request(
    client: StrictClient, origin: ScriptedOrigin, play: Play
) -> None:
    """P32: it is forwarded as the body that it is."""
    path = play(OK + b"Content-Length: 5\r\n\r\n")
    body = GET % b"/never"
    request = b"HEAD %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b"
    heard = client.ask(request % (path, len(body), body))
    assert (heard.status, heard.body, heard.is_whole) == (200, b"", True)
    assert asked(origin, path).body == body
    assert client.ask(GET % b"/canary").body == b"hello"
    assert not origin.all("/never")


def test_a_thousand_requests_on_one_connection(
    client: StrictClient, origin: ScriptedOrigin, play: Play
) -> None:
    """Both connections last."""
    path = play(OK + HELLO)
    for _ in range(10):
        client.send(GET % path * 100)
        for _ in range(100):
            heard = client.hear()
            assert (heard.status, heard.body, heard.keeps_alive) == (200, b"hello", True)
    requests = origin.all(path.decode())
    assert len(requests) == 1000
    assert len({request.connection for request in requests}) == 1


def test_nothing_is_served_behind_close(
    client: StrictClient, origin: ScriptedOrigin, play: Play
) -> None:
    """`Connection: close` is the end (RFC 9112, section 9.6)."""
    ready = threading.Event()
    path = play(ready, OK + HELLO)
    client.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % path)
    until(lambda: origin.all(path.decode()))
    client.send(GET % path)
    ready.set()
    heard = client.hear()
    assert (heard.status, heard.body, heard.keeps_alive) == (200, b"hello", False)
    assert client.is_over()
    assert len(origin.all(path.decode())) == 1


def test_a_large_answer_that_is_not_read_yet(client: StrictClient, play: Play) -> None:
    """P41: the next request waits behind it, and nothing locks up."""
    body = b"x" * 5_000_000
    path = play(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    client.send(GET % path + GET % b"/canary")
    time.sleep(0.05)
    client.send(GET % b"/canary")
    assert client.hear().body == body
    assert [client.hear().body for _ in range(2)] == [b"hello", b"hello"]


def test_a_body_is_the_same_in_either_framing(
    client: StrictClient, origin: ScriptedOrigin, play: Play
) -> None:
    """P46: an application sees the same words."""
    path = play(OK + HELLO)
    assert client.ask(HALF_CLOSED["POST"] % path).status == 200
    assert client.ask(CHUNKED_POST % path).status == 200
    assert [request.body for request in origin.all(path.decode())] == [b"body", b"body"]


# Upstreams that stop (D23) and connections that die (E10, E11, P35, P36).


def test_an_upstream_that_stops(client: StrictClient, play: Play) -> None:
    """Before its answer 504, within it an end that cannot be mistaken."""
    stop = threading.Event()
    heard = client.ask(GET % play(stop, under="/hurried"))
    assert (heard.status, json.loads(heard.body)["error"]) == (504, "timeout_first_byte")
    heard = client.ask(GET % play(OK + b"Content-Length: 9\r\n\r\nhalf", stop, under="/hurried"))
    stop.set()
    assert (heard.status, heard.is_whole) == (200, False)
    assert client.is_over()


def heard_kind(heard: Heard) -> str:
    """The kind of a failure."""
    kind: str = json.loads(heard.body)["error"]
    return kind


@pytest.mark.parametrize(
    ("method", "times"), [(b"GET", 2), (b"PUT", 2), (b"POST", 1), (b"PATCH", 1)]
)
def test_a_connection_that_dies_as_it_is_used(
    client: StrictClient, origin: ScriptedOrigin, play: Play, method: bytes, times: int
) -> None:
    """Methods that may be repeated are, once and on a new connection; others never."""
    path = play(End.RST)
    # The connection that is idle now is the one that dies.
    assert client.ask(GET % b"/canary").status == 200
    heard = client.ask(b"%b %b HTTP/1.1\r\nHost: a\r\n\r\n" % (method, path))
    assert (heard.status, heard_kind(heard)) == (502, "closed")
    requests = origin.all(path.decode())
    assert len(requests) == times
    assert len({request.connection for request in requests}) == times


@pytest.mark.parametrize(
    "extra", [b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", b"x"]
)
def test_what_comes_on_an_idle_connection_is_nobodys(
    client: StrictClient, origin: ScriptedOrigin, play: Play, extra: bytes
) -> None:
    """The connection is given up before anybody can be given it."""
    now = threading.Event()
    path = play(OK + HELLO, now, extra)
    assert client.ask(GET % path).body == b"hello"
    now.set()
    number = asked(origin, path).connection
    until(lambda: number in origin.ended)
    assert client.ask(GET % b"/canary").body == b"hello"
    assert origin.all("/canary")[-1].connection != number
