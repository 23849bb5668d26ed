"""Routes by who sends a request: `client`, `cookies` and `client_cert`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.certificates import Authority
from tests.conftest import StartGateway
from tests.e2e.raw import Answer, RawClient, RecordingUpstream, get
from tests.e2e.signs import metric, request_lines
from tests.e2e.test_explain import explained
from tests.processes import PYTHON_PATH, ROOT, Gateway
from tests.workers.family import wait_until

CONFIG: Final = """\
trusted_proxies: 127.0.0.1
lists:
  office: [203.0.113.0/24, 2001:db8:1::/48]
  staff: {{ file: '{folder}/staff.txt' }}
  partners: {{ per: 'header:X-API-Key', values: [gold, silver] }}
routes:
  /app/**:
    - {{ name: office, client: [office, staff, 192.0.2.1], respond: office }}
    - {{ name: beta, cookies: {{ beta: 'yes-*' }}, respond: beta }}
    - {{ name: both, client: office, cookies: {{ beta: '*' }}, respond: both }}
    - {{ name: partners, client: partners, respond: partners }}
    - {{ name: others, respond: others }}
  /office:
    - {{ name: read, methods: GET, client: office, respond: read }}
    - {{ name: write, methods: PUT, client: 192.0.2.1, respond: write }}
  /few:
    - {{ name: many, client: office, respond: many }}
    - {{ name: few, respond: few, limit: 1/h per all }}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with routes for some clients, of HTTP/1.1 and HTTP/2."""
    folder = tmp_path_factory.mktemp("routes")
    (folder / "staff.txt").write_text("198.51.100.7\n")
    gateway = Gateway.start(CONFIG.format(folder=folder), folder, listener="http2: true")
    yield gateway
    gateway.stop()


def _ask(gateway: Gateway, path: str, *fields: str, method: str = "GET", by: str = "") -> Answer:
    named = (f"X-Forwarded-For: {by}",) if by else ()
    return get(gateway.port, path, *fields, *named, method=method)


@pytest.mark.parametrize(
    ("by", "fields", "route"),
    [
        ("203.0.113.7", (), "office"),
        ("2001:db8:1::7", (), "office"),
        ("::ffff:203.0.113.7", (), "office"),
        ("198.51.100.7", (), "office"),
        ("192.0.2.1", (), "office"),
        ("192.0.2.1", ("X-API-Key: gold",), "office"),
        ("", ("Cookie: a=b; beta=yes-1",), "beta"),
        ("", ("Cookie: beta=yes-1", "Cookie: beta=yes-2"), "beta"),
        # Conditions of equal number are tried in the order of the file; more come first.
        ("198.51.100.7", ("Cookie: beta=yes-1",), "office"),
        ("203.0.113.7", ("Cookie: beta=yes-1",), "both"),
        ("203.0.113.7", ("Cookie: beta=no",), "both"),
        ("", ("X-API-Key: gold",), "partners"),
        ("", ("X-API-Key: gold", "X-API-Key: gold"), "partners"),
        # What can be read in another way is not met.
        ("203.0.112.7", (), "others"),
        ("unknown", (), "others"),
        ("", ("Cookie: beta=no",), "others"),
        ("", ("Cookie: beta=yes-1; beta=no",), "others"),
        ("", ("Cookie: beta=yes-1; BETA=no",), "others"),
        ("", ('Cookie: beta="yes-1\\"',), "others"),
        ("", ("Cookie: alpha=yes-1",), "others"),
        ("", ("X-API-Key: gold", "X-API-Key: silver", "X-API-Key: other"), "others"),
        ("", ("X-API-Key: goldx",), "others"),
    ],
)
def test_a_request_takes_the_route_whose_conditions_it_meets(
    gateway: Gateway, by: str, fields: tuple[str, ...], route: str
) -> None:
    """With all that it may be read as; otherwise it takes the next one."""
    assert _ask(gateway, "/app/x", *fields, by=by).body.decode() == route


def test_the_same_target_for_different_clients(gateway: Gateway) -> None:
    """What one was answered on a connection is not the next one's, who sends the same target."""
    with RawClient(gateway.port) as client:
        for _ in range(3):
            for by, route in (("203.0.113.7", b"office"), ("192.0.2.9", b"others")):
                assert client.get("/app/x", f"X-Forwarded-For: {by}").body == route
            assert client.get("/app/x", "Cookie: beta=yes-1").body == b"beta"


def test_the_next_route_may_be_none(gateway: Gateway) -> None:
    """404 for clients that no route of the path is for; 405 names what this client may use."""
    office, other = "203.0.113.7", "192.0.2.1"
    assert _ask(gateway, "/office", by=office).body == b"read"
    assert _ask(gateway, "/office", by=other, method="PUT").body == b"write"
    assert _ask(gateway, "/office", by="192.0.2.2").status == 404
    assert _ask(gateway, "/office", by="192.0.2.2", method="PUT").status == 404
    refused = _ask(gateway, "/office", by=office, method="PUT")
    assert (refused.status, refused.field("Allow")) == (405, "GET, HEAD")
    refused = _ask(gateway, "/office", by=other)
    assert (refused.status, refused.field("Allow")) == (405, "PUT")


def test_refusals_are_of_the_route_that_a_client_takes(gateway: Gateway) -> None:
    """Repeated or not, on one connection: other clients and other cookies have other routes."""
    with RawClient(gateway.port) as client:
        assert client.get("/few").status == 200
        for _ in range(5):
            assert client.get("/few").status == 429
            assert client.get("/few", "X-Forwarded-For: 203.0.113.7").body == b"many"
    assert metric(gateway, "sluice_decisions_total", policy="few", decision="refuse") == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_a_list_that_changes(start_gateway: StartGateway, tmp_path: Path, workers: int) -> None:
    """Changes who takes the route, in all workers, within seconds."""
    path = tmp_path / "staff.txt"
    path.write_text("192.0.2.1\n")
    gateway = start_gateway(
        f"server: {{ workers: {workers}, watch: off }}\n" + CONFIG.format(folder=tmp_path)
    )

    def taken(by: str) -> set[bytes]:
        return {_ask(gateway, "/app/x", by=by).body for _ in range(8)}

    assert taken("198.51.100.8") == {b"others"}
    aside = tmp_path / "aside"
    aside.write_text("198.51.100.8\n")
    aside.replace(path)
    wait_until(lambda: taken("198.51.100.8") == {b"office"}, "the new list is in use")
    assert taken("198.51.100.7") == {b"others"}


@pytest.fixture(scope="module")
def tls_gateway(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway that asks clients for certificates."""
    folder = tmp_path_factory.mktemp("tls")
    shown = authority.issue("127.0.0.1")
    gateway = Gateway.start(
        "routes:\n"
        "  /:\n"
        "    - { client_cert: { subject: 'CN=ops-*' }, respond: ops }\n"
        "    - { client_cert: { subject: 'CN=dev-*' }, client: 127.0.0.1, respond: dev }\n"
        "    - { respond: others }\n",
        folder,
        listener=f"tls: {{ cert: {shown.cert}, key: {shown.key}, client_certificates: optional, "
        f"client_ca: {authority.file} }}",
    )
    yield gateway
    gateway.stop()


@pytest.mark.parametrize("http2", [False, True])
def test_certificates(tls_gateway: Gateway, authority: Authority, *, http2: bool) -> None:
    """Of clients choose the route, over either protocol."""
    url = tls_gateway.url.replace("http:", "https:")
    found = []
    for name in ("ops-1", "dev-1", ""):
        context = authority.client_context(authority.issue(name) if name else None)
        with httpx.Client(verify=context, http1=not http2, http2=http2) as client:
            answer = client.get(url)
            assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
            found.append(answer.text)
    assert found == ["ops", "dev", "others"]


def test_http2_without_tls(gateway: Gateway) -> None:
    """Streams of one connection take the routes of their cookies."""
    with httpx.Client(http1=False, http2=True, base_url=gateway.url) as client:
        found = [
            client.get("/app/x", headers=headers).text
            for headers in (
                {"Cookie": "beta=yes-1"},
                {"Cookie": "beta=no"},
                {"X-Forwarded-For": "203.0.113.7"},
                {"X-Forwarded-For": "203.0.113.7", "Cookie": "beta=yes-1"},
            )
        ]
    assert found == ["beta", "others", "office", "both"]


def test_explain_says_why_not_the_others(tmp_path: Path) -> None:
    """Without the values of cookies, which may be secret."""
    (tmp_path / "staff.txt").write_text("198.51.100.7\n")
    config = tmp_path / "sluice.yaml"
    config.write_text(CONFIG.format(folder=tmp_path))

    said = explained(config, "/app/x", "-H", "Cookie: beta=no").splitlines()
    for line in (
        "Route: others.",
        "  Not office: it is for clients in list office or list staff or 192.0.2.1/32 only.",
        "  Not beta: it requires another value of the cookie beta.",
        "  Not partners: it is for clients in list partners only.",
    ):
        assert line in said
    said = explained(config, "/app/x", "--from", "198.51.100.7").splitlines()
    for line in (
        "Route: office.",
        "  others matches too, but office has more conditions.",
        "  Not both: it is for clients in list office only.",
    ):
        assert line in said
    said = explained(config, "/office").splitlines()
    assert said[0] == "The request is answered with 404: No route matches this request."
    assert "  Not read: it is for clients in list office only." in said


def test_the_example(start_gateway: StartGateway, tmp_path: Path) -> None:
    """Of the page about configurations does what it says."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    block = re.search(r"### Conditions on clients\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    assert block is not None
    (tmp_path / "partners.txt").write_text("gold\n")
    with RecordingUpstream() as upstream:
        text = re.sub(r"http://\w+:8000", upstream.url, block[1])
        gateway = start_gateway(f"trusted_proxies: 127.0.0.1\n{text}")
        for path, field in (
            ("/v1/pay", "X-Forwarded-For: 203.0.113.7"),
            ("/v1/pay", "X-API-Key: gold"),
            ("/v1/pay", "X-API-Key: other"),
            ("/", "Cookie: beta=group-7"),
            ("/", "Cookie: beta=none"),
        ):
            assert get(gateway.port, path, field).status == 200
        routes = [line["route"] for line in request_lines(gateway, 5)]
    assert routes == ["office", "partners", "others", "beta", "web"]


def test_a_route_that_no_client_can_take(tmp_path: Path) -> None:
    """Is an error of the configuration."""
    config = tmp_path / "sluice.yaml"
    config.write_text(
        "routes:\n  /:\n    - { client: 10.0.0.0/8, respond: a }\n"
        "    - { client: 10.1.0.0/16, respond: b }\n    - { respond: c }\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "check", str(config)],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "'/' takes all its requests" in done.stderr
