"""Costs of a policy of its own: stated before a request is forwarded, and settled afterwards."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import Answer, RawClient, RawConnection, RawUpstream, get, header_values
from tests.e2e.signs import metric, wait_for_metric
from tests.e2e.test_explain import explained
from tests.mariadb import MariaDB
from tests.processes import Gateway, free_port
from tests.servers import RedisServer

STORES: Final = ("memory", "redis", "mysql")


class Meter(RawUpstream):
    """Says what requests have cost, in the way that their path names.

    Attributes:
        heads: of all requests.
        gate: nothing is answered before it is open.
        arrived: requests that are there.
    """

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)
        super().__init__(self._answer)

    def _answer(self, connection: RawConnection) -> None:
        while head := connection.read_head():
            self.heads.append(head)
            for size in header_values(head, "Content-Length"):
                connection.read_body(int(size))
            self.arrived.release()
            assert self.gate.wait(20)
            url = urlsplit(head.split(b" ", 2)[1].decode())
            used = int(parse_qs(url.query).get("used", ["0"])[0])
            connection.send(_response(url.path.rpartition("/")[2], used))


def _response(kind: str, used: int) -> bytes:
    usage = json.dumps({"text": "x" * 300, "usage": {"total_tokens": used}}).encode()
    events = b'data: {"delta": "a"}\n\ndata: %b\n\ndata: [DONE]\n\n' % usage
    known = {
        "json": _plain(usage, "Content-Type: application/json"),
        "gzip": _plain(gzip.compress(usage), "Content-Encoding: gzip"),
        "sse": _chunked(events, "Content-Type: text/event-stream"),
        "header": _plain(b"ok", f"X-Cost: {used}"),
        "twice": _plain(b"ok", f"X-Cost: {used}", f"X-Cost: {used + 1}"),
        "trailer": _chunked(b"ok", "Trailer: X-Cost", trailer=f"X-Cost: {used}\r\n"),
        "bytes": _plain(b"x" * used),
        "stuck": _chunked(events, "Content-Type: text/event-stream").removesuffix(b"0\r\n\r\n"),
        "failure": b"HTTP/1.1 500 So\r\nX-Cost: %d\r\nContent-Length: 0\r\n\r\n" % used,
        "status": b"HTTP/1.1 %d So\r\nContent-Length: 0\r\n\r\n" % used,
    }
    return known.get(kind, _plain(b"nothing is said"))


def _chunked(body: bytes, line: str, trailer: str = "") -> bytes:
    pieces = [body[at : at + 50] for at in range(0, len(body), 50)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces)
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{line}\r\n\r\n".encode()
    return head + chunks + b"0\r\n" + trailer.encode() + b"\r\n"


def _plain(body: bytes, *lines: str) -> bytes:
    fields = "".join(f"{line}\r\n" for line in lines).encode()
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (fields, len(body), body)


@pytest.fixture
def upstream() -> Iterator[Meter]:
    """An upstream that says what requests have cost."""
    with Meter() as running:
        yield running


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a store of the kind that the test names."""
    kind = request.param
    if kind == "redis":
        return str(request.getfixturevalue("redis_url"))
    if kind == "mysql":
        mariadb: MariaDB = request.getfixturevalue("mariadb")
        return mariadb.url
    return "memory://"


def left(answer: Answer) -> int:
    """What is left of the limit, as the response says."""
    return int(answer.field("X-RateLimit-Remaining"))


def statuses(
    gateway: Gateway, path: str, count: int, *fields: str, method: str = "GET"
) -> list[int]:
    """The statuses of the responses to as many requests, one after the other."""
    return [get(gateway.port, path, *fields, method=method).status for _ in range(count)]


KINDS: Final = """
policies:
  tokens:
    limit: 1000/h per all
    algorithm: sliding_window_log
    cost: { reserve: 100, settle: "first(json:usage.total_tokens, header:X-Cost)" }
  sent: { limit: 1000/h per all, algorithm: sliding_window_log, cost: { settle: bytes / 10 } }
  time: { limit: 1000/h per all, cost: { reserve: 500, settle: 1 + duration / 1m } }
  some: { limit: 1000/h per all, cost: { reserve: 9, settle: reserve + status / 100 } }
routes:
  /t/**: { upstream: URL, policies: tokens }
  /b/**: { upstream: URL, policies: sent }
  /d/**: { upstream: URL, policies: time }
  /s/**: { upstream: URL, policies: some }
"""


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/t/json?used=42", 42),
        ("/t/json?used=420", 420),
        ("/t/gzip?used=7", 7),
        ("/t/sse?used=250", 250),
        ("/t/header?used=12", 12),
        ("/t/trailer?used=13", 13),
        ("/t/json?used=0", 0),
        # What is not known stays as it was assumed.
        ("/t/twice?used=5", 100),
        ("/t/nothing", 100),
        ("/b/bytes?used=123", 13),
        ("/d/nothing", 1),
        ("/s/status?used=204", 12),
    ],
)
def test_what_a_response_says(
    start_gateway: StartGateway, upstream: Meter, path: str, wanted: int
) -> None:
    """In its body, whole or in events or compressed, in a field or a trailer, or as it is."""
    gateway = start_gateway(KINDS.replace("URL", upstream.url))
    first = get(gateway.port, path)
    reserve = {"t": 100, "b": 1, "d": 500, "s": 9}[path[1]]
    assert left(first) == 1000 - reserve
    if path.startswith("/t/gzip"):
        assert gzip.decompress(first.body).endswith(b"}}")
    again = get(gateway.port, path.partition("?")[0].replace("json", "nothing"))
    # A token bucket has refilled a little meanwhile, which is not given back twice.
    spare = 2 if path[1] in "ds" else 0
    assert 0 <= 1000 - wanted - reserve - left(again) + spare <= 2 * spare


def test_what_cannot_be_known_is_counted(start_gateway: StartGateway, upstream: Meter) -> None:
    """In the metrics; and there is no such metric where nothing is settled."""
    gateway = start_gateway(KINDS.replace("URL", upstream.url))
    for path in ("/t/json?used=150", "/t/json?used=30", "/t/nothing", "/t/twice", "/b/bytes"):
        assert get(gateway.port, path).status == 200
    assert metric(gateway, "sluice_settled_cost_total", policy="tokens", direction="debited") == 50
    assert metric(gateway, "sluice_settled_cost_total", policy="tokens", direction="returned") == 70
    assert metric(gateway, "sluice_unsettled_requests_total", policy="tokens") == 2
    text = httpx.get(f"{gateway.admin_url}/metrics").text
    assert 'sluice_unsettled_requests_total{policy="sent"}' in text
    assert 'sluice_unsettled_requests_total{policy="time"}' not in text


DEBTS: Final = """
store: {{ url: '{store}', deadline: 20s }}
domain: d{domain}
policies:
  bucket: {{ limit: 100/h per all, cost: {{ settle: header:X-Cost }} }}
  log:
    limit: 100/h per all
    algorithm: sliding_window_log
    cost: {{ settle: header:X-Cost, max_debt: 40 }}
  window:
    limit: 100/h per all
    algorithm: fixed_window
    cost: {{ reserve: 10, settle: header:X-Cost }}
  counter:
    limit: 100/h per all
    algorithm: sliding_window_counter
    cost: {{ reserve: 10, settle: header:X-Cost, max_debt: 1000 }}
routes:
  /bucket/**: {{ upstream: {url}, policies: bucket }}
  /log/**: {{ upstream: {url}, policies: log }}
  /window/**: {{ upstream: {url}, policies: window }}
  /counter/**: {{ upstream: {url}, policies: counter }}
"""


@pytest.mark.parametrize("store_url", STORES, indirect=True)
def test_what_is_owed(start_gateway: StartGateway, upstream: Meter, store_url: str) -> None:
    """Nothing passes until it is paid, and no more is owed than `max_debt`."""
    config = DEBTS.format(store=store_url, domain=free_port(), url=upstream.url)
    gateway = start_gateway(config)
    for policy in ("bucket", "log", "window", "counter"):
        assert get(gateway.port, f"/{policy}/header?used=30").status == 200
        second = get(gateway.port, f"/{policy}/header?used=5000")
        reserve = 1 if policy in {"bucket", "log"} else 10
        assert (second.status, left(second)) == (200, 70 - reserve)
        refused = get(gateway.port, f"/{policy}/header")
        assert (refused.status, left(refused)) == (429, 0)
        if policy == "bucket":
            # 100 are owed at most, and one is needed: 101 of 100 an hour.
            assert 3500 <= int(refused.field("Retry-After")) <= 3640


@pytest.mark.parametrize("store_url", STORES, indirect=True)
def test_requests_in_flight(start_gateway: StartGateway, upstream: Meter, store_url: str) -> None:
    """They are admitted by what they reserve; the excess is at most what they use beyond that."""
    config = DEBTS.format(store=store_url, domain=free_port(), url=upstream.url)
    gateway = start_gateway(config)
    upstream.gate.clear()
    with ThreadPoolExecutor(30) as pool:
        # Each reserves 10 of 100 and uses 50, which makes 500 at most.
        asked = [pool.submit(get, gateway.port, "/counter/header?used=50") for _ in range(30)]
        for _ in range(10):
            assert upstream.arrived.acquire(timeout=20)
        refused = [one for one in asked if one.done()]
        while len(refused) < 20:
            refused = [one for one in asked if one.done()]
        upstream.gate.set()
        found = sorted(one.result().status for one in asked)
    assert found == [200] * 10 + [429] * 20
    assert {one.result().status for one in refused} == {429}
    assert wait_for_metric(
        gateway, "sluice_settled_cost_total", 400, policy="counter", direction="debited"
    )
    assert statuses(gateway, "/counter/header", 2) == [429, 429]


LOGIN: Final = """
store: {{ url: '{store}', deadline: 20s }}
domain: d{domain}
policies:
  login: {{ limit: 5/h per query:user, algorithm: {algorithm}, count_when: [401, 403] }}
  all: 100/h per all
  errors: {{ limit: 3/h per all, count_when: 5xx }}
routes:
  /login/**: {{ upstream: {url}, policies: [login, all] }}
  /gone: {{ upstream: http://127.0.0.1:1, policies: errors }}
  /ours: {{ respond: hello, policies: errors }}
"""


@pytest.mark.parametrize("store_url", STORES, indirect=True)
@pytest.mark.parametrize("algorithm", ["token_bucket", "fixed_window"])
def test_only_failures_count(
    start_gateway: StartGateway, upstream: Meter, store_url: str, algorithm: str
) -> None:
    """As many logins as one likes, and five wrong passwords; other limits count them all."""
    gateway = start_gateway(
        LOGIN.format(store=store_url, domain=free_port(), url=upstream.url, algorithm=algorithm)
    )
    right, wrong = "/login/status?user=a&used=204", "/login/status?user=a&used=401"
    assert statuses(gateway, right, 12) == [204] * 12
    assert statuses(gateway, wrong, 4) == [401] * 4
    assert statuses(gateway, right, 3) == [204] * 3
    assert statuses(gateway, wrong, 2) == [401, 429]
    assert statuses(gateway, right, 1) == [429]
    other = get(gateway.port, "/login/status?user=b&used=403")
    assert other.status == 403
    assert metric(gateway, "sluice_uncounted_requests_total", policy="login") == 15
    assert metric(gateway, "sluice_decisions_total", policy="all", decision="pass") == 21
    # The gateway's own responses are judged like others.
    assert statuses(gateway, "/ours", 5) == [200] * 5
    assert statuses(gateway, "/gone", 4) == [502] * 3 + [429]
    assert statuses(gateway, "/ours", 1) == [429]


@pytest.mark.parametrize("store_url", STORES, indirect=True)
def test_guesses_at_the_same_time(
    start_gateway: StartGateway, upstream: Meter, store_url: str
) -> None:
    """No more of them reach the upstream than one after the other would."""
    gateway = start_gateway(
        LOGIN.format(
            store=store_url, domain=free_port(), url=upstream.url, algorithm="token_bucket"
        )
    )
    upstream.gate.clear()
    path = "/login/status?user=a&used=401"
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(get, gateway.port, path) for _ in range(20)]
        for _ in range(5):
            assert upstream.arrived.acquire(timeout=20)
        while sum(one.done() for one in asked) < 15:
            pass
        upstream.gate.set()
    assert sorted(one.result().status for one in asked) == [401] * 5 + [429] * 15
    assert len(upstream.heads) == 5


def test_whoever_leaves_early_has_counted(start_gateway: StartGateway, upstream: Meter) -> None:
    """A guess whose answer is not waited for is still a guess."""
    gateway = start_gateway(
        LOGIN.format(store="memory://", domain=1, url=upstream.url, algorithm="fixed_window")
    )
    upstream.gate.clear()
    for _ in range(5):
        with RawClient(gateway.port) as client:
            client.request("/login/status?user=a&used=204")
            assert upstream.arrived.acquire(timeout=20)
    assert wait_for_metric(gateway, "sluice_clients_left_total", 5)
    upstream.gate.set()
    assert statuses(gateway, "/login/status?user=a&used=204", 1) == [429]


REQUESTS: Final = """
key_secret: 0123456789abcdef
policies:
  few: { limit: 10/h per all, cost: 4 }
  each: 100/h per all
  asked: { limit: 100/h per all, cost: "first(json:max_tokens, 30)" }
  size: { limit: 100/h per all, cost: 1 + size / 1KiB }
  pages: { limit: 100/h per all, cost: "max(1, query:limit / 10)" }
  field: { limit: 100/h per all, cost: header:X-Weight, queue: { max: 5, max_wait: 1h } }
routes:
  /both: { respond: ok, policies: [each, few] }
  /asked: { upstream: URL, policies: asked, cost: 7 }
  /size: { respond: ok, policies: size }
  /pages: { respond: ok, policies: pages }
  /field: { respond: ok, policies: field }
"""


def test_what_a_request_says(start_gateway: StartGateway, upstream: Meter) -> None:
    """A number, or what is in the request; limits of other policies count it as one."""
    gateway = start_gateway(REQUESTS.replace("URL", upstream.url))
    assert statuses(gateway, "/both", 3) == [200, 200, 429]
    assert metric(gateway, "sluice_decisions_total", policy="each", decision="pass") == 2
    assert left(get(gateway.port, "/pages?limit=25")) == 97
    assert left(get(gateway.port, "/pages")) == 96
    assert left(get(gateway.port, "/pages?limit=many")) == 95
    assert get(gateway.port, "/pages?limit=1&limit=500").status == 400
    # More than there can ever be is refused, whatever is left.
    assert get(gateway.port, "/pages?limit=5000").status == 429
    body = "Content-Length: 2500"
    with RawClient(gateway.port) as client:
        client.request("/size", body, method="POST")
        client.send(b"x" * 2500)
        assert left(client.read("POST")) == 96

    def ask(content: bytes) -> int:
        fields = {"Content-Type": "application/json"}
        url = f"{gateway.url}/asked"
        return int(
            httpx.post(url, content=content, headers=fields).headers["X-RateLimit-Remaining"]
        )

    assert [ask(b'{"max_tokens": 50}'), ask(b'{"max_tokens": null}')] == [50, 20]
    assert left(get(gateway.port, "/field", "X-Weight: 60")) == 40


def test_it_is_explained(tmp_path: Path) -> None:
    """Each limit with the cost of the request under it."""
    for config, path, costs in (
        (REQUESTS, "/both", ["Cost: 1.", "Cost: 4."]),
        (KINDS, "/t/json", ["Cost: 100, settled by the response."]),
    ):
        file = tmp_path / "gateway.yaml"
        file.write_text(config.replace("URL", "http://127.0.0.1:1"))
        text = explained(file, "GET", path)
        assert [cost for cost in costs if cost not in text] == []


def test_a_turn_that_is_given_up_costs_nothing(
    start_gateway: StartGateway, upstream: Meter
) -> None:
    """Neither what it would have reserved, nor what its response would have said."""
    gateway = start_gateway(
        """
policies:
  slow:
    limit: 2/h per all
    cost: { reserve: 2, settle: header:X-Cost }
    queue: { max: 5, max_wait: 2h }
routes:
  /**: { upstream: URL, policies: slow }
""".replace("URL", upstream.url)
    )
    assert get(gateway.port, "/header?used=2").status == 200
    with RawClient(gateway.port) as client:
        client.request("/header?used=2")
        assert wait_for_metric(gateway, "sluice_policy_waiting", 1, policy="slow")
    assert wait_for_metric(gateway, "sluice_policy_waiting", 0, policy="slow")
    assert metric(gateway, "sluice_unsettled_requests_total", policy="slow") == 0
    assert len(upstream.heads) == 1


def test_what_an_upstream_may_send_can_be_read(
    start_gateway: StartGateway, upstream: Meter
) -> None:
    """The codings that a client accepts are narrowed, only where a body is read."""
    gateway = start_gateway(KINDS.replace("URL", upstream.url))
    for path in ("/t/json?used=1", "/b/bytes?used=1"):
        get(gateway.port, path, "Accept-Encoding: br, gzip")
    told = [header_values(head, "Accept-Encoding") for head in upstream.heads]
    assert told == [["gzip"], ["br, gzip"]]


def test_what_clients_cannot_make_cheaper(start_gateway: StartGateway, upstream: Meter) -> None:
    """A number that is none, or is too large; leaving before the end; an error page."""
    gateway = start_gateway(
        """
error_pages: { 5xx: { text: sorry, intercept: true } }
policies:
  most: { limit: 1000/h per all, cost: "max(500, json:n)" }
  plain: { limit: 1000/h per header:X-Key, cost: json:n }
  cut: { limit: 1000/h per all, cost: { reserve: 100, settle: json:usage.total_tokens } }
  failed: { limit: 1000/h per all, algorithm: fixed_window, cost: { settle: header:X-Cost } }
  weighed: { limit: 1000/h per all, cost: header:X-Weight }
routes:
  /weighed: { upstream: URL, policies: weighed }
  /most: { upstream: URL, policies: most }
  /plain: { upstream: URL, policies: plain }
  /cut/**: { upstream: URL, policies: cut }
  /failed/**: { upstream: URL, policies: failed }
""".replace("URL", upstream.url)
    )

    def ask(path: str, content: str, key: str = "") -> httpx.Response:
        fields = {"Content-Type": "application/json", "X-Key": key}
        return httpx.post(f"{gateway.url}{path}", content=content, headers=fields)

    assert [ask("/most", text).status_code for text in ('{"n": -1}', "{}", '{"n": 1}')] == [
        *(200, 200, 429)
    ]
    for text, wanted in (("1e2", 900), ("200.0", 800), ("10000000000000000", None), ("1e300", 999)):
        answer = ask("/plain", f'{{"n": {text}}}', key=text)
        assert answer.status_code == (429 if wanted is None else 200), text
        if wanted is not None:
            assert answer.headers["X-RateLimit-Remaining"] == str(wanted), text
    with RawClient(gateway.port) as client:
        client.request("/cut/stuck?used=5")
        assert client.sock.recv(1 << 16)
    assert wait_for_metric(gateway, "sluice_unsettled_requests_total", 1, policy="cut")
    assert metric(gateway, "sluice_settled_cost_total", policy="cut", direction="returned") == 0
    get(gateway.port, "/weighed", "X_Weight: 50")
    assert b"50" not in upstream.heads[-1]
    assert get(gateway.port, "/failed/failure?used=300", "Accept: text/plain").body == b"sorry"
    assert left(get(gateway.port, "/failed/nothing")) == 699


def test_a_queue_counts_requests_whatever_they_cost(
    start_gateway: StartGateway, upstream: Meter
) -> None:
    """As many may wait as it says."""
    gateway = start_gateway(
        """
policies:
  two: { limit: 2/h per all, cost: 2, queue: { max: 3, max_wait: 100h } }
  any: { limit: 2/h per all, cost: "1 + 1 * header:X-Weight", queue: { max: 3, max_wait: 100h } }
routes:
  /two: { upstream: URL, policies: two }
  /any: { upstream: URL, policies: any }
""".replace("URL", upstream.url)
    )
    for name in ("two", "any"):
        waiting = [RawClient(gateway.port) for _ in range(3)]
        assert get(gateway.port, f"/{name}", "X-Weight: 1").status == 200
        for client in waiting:
            client.request(f"/{name}", "X-Weight: 1")
        assert wait_for_metric(gateway, "sluice_policy_waiting", 3, policy=name)
        assert get(gateway.port, f"/{name}", "X-Weight: 1").status == 429
        for client in waiting:
            client.close()


def test_several_workers_share_what_is_owed(start_gateway: StartGateway, upstream: Meter) -> None:
    """Also with the memory store, whose limits may have different costs in one request."""
    gateway = start_gateway(
        """
server: { workers: 2 }
policies:
  tokens: { limit: 1000/h per all, cost: { reserve: 10, settle: header:X-Cost } }
  each: 20/h per all
routes:
  /**: { upstream: URL, policies: [each, tokens] }
""".replace("URL", upstream.url)
    )
    assert statuses(gateway, "/header?used=110", 10) == [200] * 10
    assert wait_for_metric(
        gateway, "sluice_settled_cost_total", 1000, policy="tokens", direction="debited"
    )
    assert statuses(gateway, "/header", 3) == [429] * 3


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_changes_what_is_counted(
    start_gateway: StartGateway, upstream: Meter, tmp_path: Path, workers: int
) -> None:
    """From then on; a request that is under way is settled as it began."""
    config = f"""
server: {{ workers: {workers} }}
policies:
  tokens: {{ limit: 1000/h per all, algorithm: fixed_window, cost: {{ settle: COST }} }}
routes:
  /**: {{ upstream: {upstream.url}, policies: tokens }}
"""
    gateway = start_gateway(config.replace("COST", "header:X-Cost"))
    upstream.gate.clear()
    with RawClient(gateway.port) as client:
        client.request("/header?used=100")
        assert upstream.arrived.acquire(timeout=20)
        file = tmp_path / f"gateway-{gateway.port}.yaml"
        file.write_text(file.read_text().replace("header:X-Cost", "2 * header:X-Cost"))
        done = httpx.post(f"{gateway.admin_url}/reload", json={}, timeout=30)
        assert done.status_code == 200, done.text
        upstream.gate.set()
        assert left(client.read()) == 999
    assert left(get(gateway.port, "/header?used=100")) == 899
    assert left(get(gateway.port, "/nothing")) == 699


def test_an_outage_forgets_no_debt(
    start_gateway: StartGateway, upstream: Meter, redis_server: RedisServer
) -> None:
    """What is used while the store is away is told to it when it is back."""
    gateway = start_gateway(
        f"""
store: {redis_server.url}
policies:
  tokens: {{ limit: 1000/h per all, cost: {{ settle: header:X-Cost }} }}
routes:
  /**: {{ upstream: {upstream.url}, policies: tokens }}
"""
    )
    assert get(gateway.port, "/header?used=100").status == 200
    redis_server.freeze()
    assert get(gateway.port, "/header?used=300").status == 200
    redis_server.thaw()
    assert wait_for_metric(gateway, "sluice_store_ready", 1)
    # At least 400 were used, and what is asked from now on; a few come back meanwhile.
    deadline = time.monotonic() + 30
    while left(get(gateway.port, "/header?used=1")) > 605:
        assert time.monotonic() < deadline
        time.sleep(0.05)
