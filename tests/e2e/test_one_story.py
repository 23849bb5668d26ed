"""Who a client is, and what it asked by: the same for limits, redirects, logs and upstreams."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from tests.e2e.raw import RawClient, RecordingUpstream, get, header_values
from tests.processes import Gateway

PROXY = "127.0.0.9"
STRANGER = "127.0.0.1"

ROUTES = """
trusted_proxies: [127.0.0.9, 10.0.0.0/8]
policies:
  each: {{ limit: 1000/h per header:X-API-Key }}
  real: {{ limit: 1000/h per header:X-Real-IP, if_missing: reject }}
  hosts: {{ limit: 1/h per header:Host }}
routes:
  /**:
    upstream: {url}
    policies: each
    request_headers:
      set: {{ X-Team: blue, X-Seen: "{{client_ip}} {{scheme}}" }}
      remove: [X-Debug-Level]
  /real: {{ upstream: {url}, policies: real }}
  /hosts:
    upstream: {url}
    policies: hosts
    request_headers: {{ set: {{ X-Seen: "{{header.host}}" }} }}
  /moved: {{ redirect: {{ to: "{{scheme}}://{{host}}/new" }} }}
  /by-header:
    - {{ headers: {{ X-Tier: gold }}, upstream: {url} }}
    - {{ respond: {{ status: 404 }} }}
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
    """One gateway for all cases."""
    folder = tmp_path_factory.mktemp("story")
    gateway = Gateway.start(ROUTES.format(url=upstream.url), folder)
    yield gateway
    gateway.stop()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture(scope="module")
def wsgi_url() -> Iterator[str]:
    """An application behind wsgiref, which reads `_` as `-`, and tells what it was given."""

    def application(environ: dict[str, object], start_response: object) -> list[bytes]:
        told = {name: value for name, value in environ.items() if name.startswith("HTTP_")}
        start_response("200 OK", [("Content-Type", "application/json")])  # type: ignore[operator]
        return [json.dumps(told).encode()]

    with make_server("127.0.0.1", 0, application, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def told(
    gateway: Gateway, upstream: RecordingUpstream, *fields: str, source: str = PROXY
) -> dict[str, str]:
    """What the upstream is told, by the names of the fields without a prefix."""
    assert get(gateway.port, "/", *fields, source=source).status == 200
    head = upstream.heads[-1]
    found: dict[str, str] = {}
    for name in ("For", "Proto", "Host"):
        (found[name],) = header_values(head, f"X-Forwarded-{name}")
    (found["Forwarded"],) = header_values(head, "Forwarded")
    (found["Seen"],) = header_values(head, "X-Seen")
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("X_Forwarded_For", "X-Forwarded_For", "x_forwarded_for", "X.Forwarded.For"),
        *("X_Real_IP", "X_Forwarded_Proto", "Front_End_Https", "Client_Cert", "True.Client-IP"),
        *("X_API_Key", "X-API_Key", "x_api-key", "X.API.Key", "X_Tier", "X_Team", "X_Debug_Level"),
        *("Content_Length", "Transfer_Encoding"),
    ],
)
@pytest.mark.parametrize("source", [PROXY, STRANGER])
def test_no_spelling_reaches_the_upstream_that_it_may_read_as_ours(
    gateway: Gateway, upstream: RecordingUpstream, name: str, source: str
) -> None:
    """Names that CGI folds into one that is told, counted, routed, set or removed here."""
    fields = ("X-Forwarded-For: 203.0.113.9", "X-API-Key: k1", f"{name}: 6.6.6.6")
    assert get(gateway.port, "/", *fields, source=source).status == 200
    assert b"6.6.6.6" not in upstream.heads[-1]


@pytest.mark.parametrize(
    ("path", "line"),
    [("/", "X-API-Key: k1"), ("/by-header", "X-Tier: gold"), ("/", "x-api-key: k2")],
)
def test_what_counts_cannot_be_taken_away(
    gateway: Gateway, upstream: RecordingUpstream, path: str, line: str
) -> None:
    """Or a client could count under a new key each time, and be nobody for the upstream."""
    name = line.partition(":")[0]
    options = f"Connection: x-other, {name.lower()}"
    assert get(gateway.port, path, line, "X-Other: 1", options).status == 200
    assert f"\r\n{line}\r\n".encode() in upstream.heads[-1]
    assert b"X-Other" not in upstream.heads[-1]


def test_the_host_is_the_one_that_the_upstream_is_told(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """Of a target with a host, whatever `Host` says; case and port are no part of a key."""
    hosts = (("real.test", "a.test"), ("real.test", "b.test"), ("REAL.test:8080", "c.test"))
    statuses: list[int] = []
    for target, field in hosts:
        with RawClient(gateway.port) as client:
            line = f"GET http://{target}/hosts HTTP/1.1\r\nHost: {field}\r\n\r\n"
            client.send(line.encode())
            statuses.append(client.read().status)
    assert statuses == [200, 429, 429]
    assert header_values(upstream.heads[-1], "Host") == ["real.test"]
    assert header_values(upstream.heads[-1], "X-Seen") == ["real.test"]


def test_other_names_with_underscores_go_on(gateway: Gateway, upstream: RecordingUpstream) -> None:
    """Byte for byte: they shadow nothing."""
    lines = ("X_Custom_Id: 6.6.6.6", "api_key: a", "X.Trace: b", "Content_Type: c", "x_api_keys: d")
    assert get(gateway.port, "/", *lines).status == 200
    for line in lines:
        assert f"\r\n{line}\r\n".encode() in upstream.heads[-1]


def test_a_wsgi_application_reads_what_was_counted(wsgi_url: str, tmp_path: Path) -> None:
    """A server that folds names finds the address and the key that the limit knows."""
    gateway = Gateway.start(ROUTES.format(url=wsgi_url), tmp_path)
    fields = (
        *("X-Forwarded-For: 203.0.113.9", "X_Forwarded_For: 6.6.6.6"),
        *("X-API-Key: k1", "X_API_Key: k2", "X_Real_IP: 6.6.6.6"),
    )
    answer = get(gateway.port, "/", *fields, source=PROXY)
    gateway.stop()
    seen = json.loads(answer.body)
    assert seen["HTTP_X_FORWARDED_FOR"] == f"203.0.113.9, {PROXY}"
    assert seen["HTTP_X_API_KEY"] == "k1"
    assert "HTTP_X_REAL_IP" not in seen


CHAIN = f'for=203.0.113.9;host="gateway.test";proto=https, for={PROXY}'


@pytest.mark.parametrize(
    ("fields", "chain", "proto", "host", "forwarded"),
    [
        pytest.param(
            ["X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https"],
            *("203.0.113.9, ", "https", "gateway.test", CHAIN),
            id="only X-Forwarded-*",
        ),
        pytest.param(
            ["Forwarded: for=203.0.113.9;proto=https"],
            *("203.0.113.9, ", "https", "gateway.test", CHAIN),
            id="only Forwarded",
        ),
        pytest.param(
            ["X-Forwarded-For: 203.0.113.9", "Forwarded: for=203.0.113.9;proto=https"],
            *("203.0.113.9, ", "https", "gateway.test", CHAIN),
            id="both, which agree",
        ),
        pytest.param(
            [
                *("X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https"),
                "Forwarded: for=6.6.6.6;proto=http;host=evil.test",
            ],
            *("203.0.113.9, ", "https", "gateway.test", CHAIN),
            id="both, which disagree",
        ),
        pytest.param(
            ["X-Forwarded-For: 203.0.113.9", "Forwarded: for=6.6.6.6;proto=https"],
            *("203.0.113.9, ", "http", "gateway.test"),
            f'for=203.0.113.9;host="gateway.test";proto=http, for={PROXY}',
            id="Forwarded of another client",
        ),
        pytest.param(
            ["X-Forwarded-Proto: https", "Forwarded: for=203.0.113.9;proto=http"],
            *("203.0.113.9, ", "https", "gateway.test", CHAIN),
            id="one detail of each",
        ),
        pytest.param(
            ['Forwarded: for="[2001:db8::1]:443";proto=HTTPS;host="www.test:8443";by=10.0.0.1'],
            *("2001:db8::1, ", "https", "www.test:8443"),
            f'for="[2001:db8::1]";host="www.test:8443";proto=https, for={PROXY}',
            id="IPv6, quoted",
        ),
        pytest.param(
            ["X-Forwarded-For: 2001:db8::1"],
            *("2001:db8::1, ", "http", "gateway.test"),
            f'for="[2001:db8::1]";host="gateway.test";proto=http, for={PROXY}',
            id="IPv6, bare",
        ),
        pytest.param(
            ["Forwarded: for=_hidden;proto=https"],
            *("_hidden, ", "https", "gateway.test"),
            f'for=_hidden;host="gateway.test";proto=https, for={PROXY}',
            id="obfuscated",
        ),
        pytest.param(
            ["Forwarded: proto=https"],
            *("unknown, ", "https", "gateway.test"),
            f'for=unknown;host="gateway.test";proto=https, for={PROXY}',
            id="nobody named",
        ),
        pytest.param(
            ["X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: gopher, ,", "X-Forwarded-Host: /"],
            *("203.0.113.9, ", "http", "gateway.test"),
            f'for=203.0.113.9;host="gateway.test";proto=http, for={PROXY}',
            id="schemes and hosts that are none",
        ),
        pytest.param(
            ['Forwarded: for="203.0.113.9;proto=https'],
            *("unknown, ", "http", "gateway.test"),
            f'for=unknown;host="gateway.test";proto=http, for={PROXY}',
            id="malformed",
        ),
        pytest.param(
            [
                *("X-Forwarded-For: 6.6.6.6, 203.0.113.9", "X-Forwarded-For: 10.0.0.2"),
                *("X-Forwarded-Proto: https, https", "X-Forwarded-Proto: http"),
                "X-Forwarded-Host: evil.test, www.test, inner.test",
            ],
            *("6.6.6.6, 203.0.113.9, 10.0.0.2, ", "https", "www.test"),
            'for=6.6.6.6, for=203.0.113.9;host="www.test";proto=https, for=10.0.0.2, for=127.0.0.9',
            id="a value of each proxy",
        ),
        pytest.param(
            [
                "Forwarded: for=6.6.6.6;proto=https, for=203.0.113.9;proto=http",
                "Forwarded: for=10.0.0.2;proto=https",
            ],
            *("6.6.6.6, 203.0.113.9, 10.0.0.2, ", "http", "gateway.test"),
            'for=6.6.6.6, for=203.0.113.9;host="gateway.test";proto=http, '
            "for=10.0.0.2, for=127.0.0.9",
            id="an element of each proxy",
        ),
        pytest.param(
            ["X-Forwarded-For: , ", "Forwarded: for=203.0.113.9;proto=https"],
            *("203.0.113.9, ", "https", "gateway.test", CHAIN),
            id="an empty list",
        ),
        pytest.param(
            ["X-Forwarded-For: 203.0.113.9", "X-Forwarded-Ssl: on"],
            *("203.0.113.9, ", "https", "gateway.test", CHAIN),
            id="an older word for the scheme",
        ),
        pytest.param(
            [],
            *("", "http", "gateway.test", f'for={PROXY};host="gateway.test";proto=http'),
            id="nothing",
        ),
    ],
)
def test_both_families_tell_one_story(
    gateway: Gateway,
    upstream: RecordingUpstream,
    fields: list[str],
    chain: str,
    proto: str,
    host: str,
    forwarded: str,
) -> None:
    """Whichever a trusted proxy sends; templates and redirects go by it (RFC 7239, 7.4)."""
    found = told(gateway, upstream, *fields)
    address = found["Seen"].partition(" ")[0]
    assert found == {
        "For": f"{chain}{PROXY}",
        "Proto": proto,
        "Host": host,
        "Forwarded": forwarded,
        "Seen": f"{address} {proto}",
    }
    known = [one for one in ("203.0.113.9", "2001:db8::1") if one in chain]
    assert address == (known[0] if known else PROXY)
    moved = get(gateway.port, "/moved", *fields, source=PROXY)
    assert moved.field("Location") == f"{proto}://gateway.test/new"


@pytest.mark.parametrize(
    "field",
    [
        *("X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test"),
        *("Forwarded: for=6.6.6.6;proto=https;host=evil.test", "X-Forwarded-Ssl: on"),
        *("X-Url-Scheme: https", "Front-End-Https: on", "Client-IP: 6.6.6.6", "X-Real-IP: 6.6.6.6"),
    ],
)
def test_a_stranger_tells_no_story(
    gateway: Gateway, upstream: RecordingUpstream, field: str
) -> None:
    """Both families are the gateway's own words then."""
    assert told(gateway, upstream, field, source=STRANGER) == {
        "For": STRANGER,
        "Proto": "http",
        "Host": "gateway.test",
        "Forwarded": f'for={STRANGER};host="gateway.test";proto=http',
        "Seen": f"{STRANGER} http",
    }
    assert field.partition(":")[2].encode() not in upstream.heads[-1]
    moved = get(gateway.port, "/moved", field, source=STRANGER)
    assert moved.field("Location") == "http://gateway.test/new"


def test_words_that_contradict_the_story_do_not_pass(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """gunicorn, for one, refuses a request whose words for the scheme differ."""
    fields = ("X-Forwarded-Proto: http", "X-Forwarded-Ssl: on", "X-Forwarded-Scheme: http")
    assert told(gateway, upstream, *fields)["Proto"] == "http"
    assert header_values(upstream.heads[-1], "X-Forwarded-Ssl") == []
    assert header_values(upstream.heads[-1], "X-Forwarded-Scheme") == ["http"]


def test_keys_go_by_what_the_upstream_is_told(
    gateway: Gateway, upstream: RecordingUpstream
) -> None:
    """An address that a stranger made up is no key: the upstream never sees it."""
    before = len(upstream.heads)
    assert get(gateway.port, "/real", "X-Real-IP: 6.6.6.6", source=STRANGER).status == 400
    assert len(upstream.heads) == before
    assert get(gateway.port, "/real", "X-Real-IP: 203.0.113.9", source=PROXY).status == 200


def test_the_log_names_the_client_of_what_found_no_route(tmp_path: Path) -> None:
    """And of what was redirected or refused: whoever asked, not the proxy in front."""
    gateway = Gateway.start(
        "trusted_proxies: [127.0.0.9]\nroutes: { /here: { respond: { status: 204 } } }\n", tmp_path
    )
    paths = {"/nowhere": 404, "/a/%2e%2e/here": 400, "/here": 204}
    chain = "X-Forwarded-For: 203.0.113.9"
    statuses = {path: get(gateway.port, path, chain, source=PROXY).status for path in paths}
    gateway.stop()
    assert statuses == paths
    lines = [json.loads(line) for line in gateway.server.lines]
    clients = {line["path"]: line["client"] for line in lines if "path" in line}
    assert clients == dict.fromkeys(paths, "203.0.113.9")


@pytest.fixture(scope="module")
def redirecting(
    upstream: RecordingUpstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway that has all its clients come by https."""
    folder = tmp_path_factory.mktemp("redirecting")
    gateway = Gateway.start(
        ROUTES.format(url=upstream.url), folder, listener="redirect_to_https: true"
    )
    yield gateway
    gateway.stop()


@pytest.mark.parametrize(
    ("field", "status"),
    [
        ("X-Forwarded-Proto: https", 200),
        ("Forwarded: proto=https", 200),
        ("Forwarded: for=203.0.113.9;proto=https", 200),
        ("X-Forwarded-Proto: http", 308),
        ("Forwarded: for=203.0.113.9", 308),
        ("X_Forwarded_Proto: https", 308),
        ("X-Other: 1", 308),
    ],
)
def test_who_came_by_https_is_not_sent_there_again(
    redirecting: Gateway, field: str, status: int
) -> None:
    """A trusted balancer has ended TLS and says so: the request goes to its route."""
    assert get(redirecting.port, "/", field, source=PROXY).status == status


@pytest.mark.parametrize("field", ["X-Forwarded-Proto: https", "Forwarded: proto=https"])
def test_a_stranger_is_sent_to_https(redirecting: Gateway, field: str) -> None:
    """Whatever he says that he came by."""
    answer = get(redirecting.port, "/a?b", field, source=STRANGER)
    assert (answer.status, answer.field("Location")) == (308, "https://gateway.test/a?b")
