"""What the gateway tells about itself: health, readiness, metrics, and a line for each request."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import requests

from tests.conftest import StartGateway
from tests.e2e.raw import RawClient, RecordingUpstream, get
from tests.e2e.signs import log_lines, metric, request_lines, wait_for_metric
from tests.processes import Gateway, free_port
from tests.servers import RedisServer

CONFIG = """
policies:
  strict: {{ limit: 2/h per header:X-Key, if_missing: skip }}
  patient: {{ limit: 1/s burst 1 per all, queue: {{ max: 10, max_wait: 30s }} }}
routes:
  /strict: {{ upstream: {url}, policies: [strict] }}
  /patient: {{ upstream: {url}, policies: [patient] }}
  /open: {{ upstream: {url} }}
  /broken: {{ upstream: "http://127.0.0.1:{broken}" }}
"""


def _wait_for_readiness(gateway: Gateway, status: int) -> dict[str, object]:
    deadline = time.monotonic() + 30
    while True:
        answer = requests.get(f"{gateway.admin_url}/readyz", timeout=10)
        if answer.status_code == status:
            document: dict[str, object] = answer.json()
            return document
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.02)


def test_every_request_has_its_line(start_gateway: StartGateway) -> None:
    """Route, policy, decision, wait, upstream, its time, status and error, as JSON, in order."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, broken=free_port()))
        for _ in range(3):
            get(gateway.port, "/strict", "X-Key: a")
        get(gateway.port, "/strict")
        get(gateway.port, "/patient?a=1")
        get(gateway.port, "/patient?a=2", source="127.0.0.3")
        get(gateway.port, "/open")
        get(gateway.port, "/broken")
        get(gateway.port, "/nowhere")
        with RawClient(gateway.port) as client:
            client.send(b"GET / HTTP/1.1\r\nHost: gateway.test\r\nno field\r\n\r\n")
            assert client.read().status == 400
        lines = request_lines(gateway, 10)
        told = [
            (
                *(line["path"], line.get("route"), line.get("policy"), line["decision"]),
                *(line["status"], line.get("error")),
            )
            for line in lines
        ]
        assert told == [
            ("/strict", "/strict", "strict", "pass", 200, None),
            ("/strict", "/strict", "strict", "pass", 200, None),
            ("/strict", "/strict", "strict", "refuse", 429, None),
            ("/strict", "/strict", None, "skip", 200, None),
            ("/patient?a=1", "/patient", "patient", "pass", 200, None),
            ("/patient?a=2", "/patient", "patient", "delay", 200, None),
            ("/open", "/open", None, "none", 200, None),
            ("/broken", "/broken", None, "none", 502, "connect"),
            ("/nowhere", None, None, "none", 404, "no_route"),
            ("", None, None, "none", 400, "syntax"),
        ]
        target = upstream.url.removeprefix("http://")
        for line in lines:
            age = datetime.now(UTC) - datetime.fromisoformat(line["time"])
            assert timedelta(0) <= age < timedelta(minutes=2)
            assert line["duration_ms"] >= line["wait_ms"] >= 0
            if line["status"] == 200:
                assert target in line["upstream"]
                assert 0 < line["upstream_ms"] <= line["duration_ms"]
                assert (line["bytes"], line["method"], line["host"]) == (2, "GET", "gateway.test")
        assert lines[5]["client"] == "127.0.0.3"
        # Its turn is a second after the first; how late it is on top of that is the machine's.
        assert 0 < lines[5]["wait_ms"] < 30_000
        assert lines[5]["duration_ms"] >= 0.9 * lines[5]["wait_ms"]
        assert "upstream" not in lines[2]


def test_lines_for_people(start_gateway: StartGateway) -> None:
    """`format: text` writes one readable line for each request, none if `access` is off."""
    with RecordingUpstream() as upstream:
        config = CONFIG.format(url=upstream.url, broken=free_port())
        text = start_gateway("log: { format: text }\n" + config)
        silent = start_gateway("log: { access: false }\n" + config)
        for gateway in (text, silent):
            get(gateway.port, "/strict", "X-Key: a")
            gateway.stop()
        (line,) = [line for line in text.server.stdout.splitlines() if "/strict" in line]
        for part in (" 200 pass ", "127.0.0.1", "GET", "route=/strict", "policy=strict"):
            assert part in line
        assert "/strict" not in silent.server.stdout


def test_nothing_that_a_client_sends_makes_a_line_of_its_own(start_gateway: StartGateway) -> None:
    """Quotes, control characters and bytes that are no text stay inside their field."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, broken=free_port()))
        get(gateway.port, '/open"}?\\x1b[31m\xff\xfe', "X-Key: a")
        get(gateway.port, "/open%0A%22?%0d%0a")
        lines = request_lines(gateway, 2)
        assert len(lines) == 2
        assert lines[1]["path"] == "/open%0A%22?%0d%0a"


def test_metrics_count_what_happened(start_gateway: StartGateway) -> None:
    """Requests by route and status, decisions by policy, errors by kind, and who is connected."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, broken=free_port()))
        for _ in range(5):
            get(gateway.port, "/strict", "X-Key: a")
        get(gateway.port, "/strict")
        get(gateway.port, "/patient")
        get(gateway.port, "/patient")
        get(gateway.port, "/broken")
        get(gateway.port, "/nowhere")

        def count(name: str, **labels: str) -> float:
            return metric(gateway, f"sluice_{name}", **labels)

        assert count("requests_total", route="/strict", status="200") == 3
        assert count("requests_total", route="/strict", status="429") == 3
        assert count("requests_total", route="/broken", status="502") == 1
        assert count("decisions_total", policy="strict", decision="pass") == 2
        assert count("decisions_total", policy="strict", decision="refuse") == 3
        assert count("decisions_total", policy="strict", decision="skip") == 1
        assert count("decisions_total", policy="patient", decision="delay") == 1
        assert 0 < count("policy_wait_seconds_total", policy="patient") < 30
        assert count("request_duration_seconds_count", route="/strict") == 6
        assert count("upstream_errors_total", kind="connect") == 1
        assert count("client_errors_total", kind="no_route") == 1
        assert wait_for_metric(gateway, "sluice_client_connections", 0)
        with RawClient(gateway.port) as client:
            client.get("/open")
            assert count("client_connections") == 1
        assert wait_for_metric(gateway, "sluice_client_connections", 0)


def test_health_is_about_the_process_and_readiness_about_traffic(
    start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    """Without a store that a policy needs the gateway lives, but wants no traffic."""
    with RecordingUpstream() as upstream:
        store = f"store: {redis_server.url}\n"
        limit = f"routes:\n  /**: {{ upstream: {upstream.url}, limit: 5/s"
        needs = start_gateway(f"{store}{limit}, on_store_error: closed }}\n")
        does_without = start_gateway(f"{store}{limit} }}\n")
        assert metric(needs, "sluice_store_ready") == 1
        redis_server.kill()
        for gateway in (needs, does_without):
            get(gateway.port)
        reasons = _wait_for_readiness(needs, 503)["reasons"]
        assert "store" in str(reasons)
        assert wait_for_metric(does_without, "sluice_store_ready", 0)
        assert "store" in str(_wait_for_readiness(does_without, 200)["reasons"])
        for gateway in (needs, does_without):
            assert requests.get(f"{gateway.admin_url}/healthz", timeout=10).status_code == 200
        redis_server.start()
        assert _wait_for_readiness(needs, 200)["reasons"] == []


def test_the_breaker_shows(start_gateway: StartGateway, redis_server: RedisServer) -> None:
    """While a dead store is left alone, the metrics say so."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"store: {{ url: '{redis_server.url}', deadline: 5s }}\n"
            f"routes:\n  /**: {{ upstream: {upstream.url}, limit: 5/s }}\n"
        )
        get(gateway.port)
        assert metric(gateway, "sluice_store_breaker", state="closed") == 1
        redis_server.kill()
        for _ in range(5):
            get(gateway.port)
        assert metric(gateway, "sluice_store_breaker", state="closed") == 0
        assert metric(gateway, "sluice_store_errors_total") > 0


def test_secrets_stay_out_of_sight(start_gateway: StartGateway, redis_server: RedisServer) -> None:
    """A password in the store's URL is in no log line and no metric."""
    url = redis_server.url.replace("redis://", "redis://:hunter2-secret@")
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            "store: ${REDIS_URL}\n" + CONFIG.format(url=upstream.url, broken=free_port()),
            env={"REDIS_URL": url},
        )
        get(gateway.port, "/strict", "X-Key: a")
        request_lines(gateway, 1)
        text = requests.get(f"{gateway.admin_url}/metrics", timeout=10).text
        for output in (text, gateway.server.stdout, gateway.server.stderr):
            assert "hunter2" not in output


def test_the_admin_pages_are_not_on_the_data_listener(start_gateway: StartGateway) -> None:
    """Clients of the gateway see nothing of it."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, broken=free_port()))
        for path in ("/metrics", "/healthz", "/readyz"):
            assert get(gateway.port, path).status == 404


def test_the_log_begins_with_where_the_gateway_listens(start_gateway: StartGateway) -> None:
    """Whoever starts it reads the addresses."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url, broken=free_port()))
        messages = [line["message"] for line in log_lines(gateway)]
        assert any(re.search(rf"listening on {gateway.url}", message) for message in messages)
