"""Who is not limited, and who is not served: `except`, `allow`, `deny`, `lists`, `preflight`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import Answer, RawClient, RecordingUpstream, get
from tests.e2e.signs import metric, request_lines
from tests.processes import PYTHON_PATH, Gateway
from tests.workers.family import wait_until

CONFIG: Final = """\
trusted_proxies: 127.0.0.1
lists:
  office: [203.0.113.0/24, 2001:db8:1::/48]
  partners: {{ per: 'header:X-API-Key', values: [gold, silver] }}
  blocked: {{ file: '{folder}/blocked.txt' }}
  revoked: {{ per: 'cookie:sid', file: '{folder}/revoked.txt' }}
deny: [blocked, revoked, 198.51.100.66]
preflight: 2/h per ip
policies:
  api:
    limit: 1/h per header:X-API-Key
    if_missing: reject
    except:
      - office
      - partners
      - HEAD
      - /v1/health
      - GET /v1/static/**
      - {{ headers: {{ X-Plan: 'int*nal' }}, methods: [GET, PUT] }}
      - {{ cookies: {{ staff: 'yes-*' }}, path: '/v1/{{id}}' }}
routes:
  /v1/**: {{ upstream: '{url}', policies: api }}
  /admin/**: {{ upstream: '{url}', allow: [office, 192.0.2.1], deny: 203.0.113.9 }}
  /tier:
    - {{ headers: {{ X-Tier: 'paid_*' }}, respond: paid }}
    - {{ respond: free }}
  POST /login: {{ respond: hello, limit: 1/h per json:user }}
  /all: {{ upstream: '{url}', limit: 1/h per all, except: 203.0.113.0/24 }}
"""


@pytest.fixture
def upstream() -> Iterator[RecordingUpstream]:
    """What routes lead to."""
    with RecordingUpstream() as server:
        yield server


@pytest.fixture
def gateway(start_gateway: StartGateway, upstream: RecordingUpstream, tmp_path: Path) -> Gateway:
    """A gateway with lists in files."""
    (tmp_path / "blocked.txt").write_text("# blocked\n198.51.100.0/28\n")
    (tmp_path / "revoked.txt").write_text("stolen\n")
    return start_gateway(CONFIG.format(url=upstream.url, folder=tmp_path))


def _ask(gateway: Gateway, path: str, *fields: str, method: str = "GET", by: str = "") -> Answer:
    named = (f"X-Forwarded-For: {by}",) if by else ()
    return get(gateway.port, path, *fields, *named, method=method)


def _sluice(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *words],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_policy_does_not_count_its_exceptions(gateway: Gateway) -> None:
    """Neither do they need the key of the limit, nor have they fields about it."""
    key = "X-API-Key: k1"
    assert [_ask(gateway, "/v1/pay", key).status for _ in range(2)] == [200, 429]
    # Without the key, a request that is counted gets 400.
    assert _ask(gateway, "/v1/pay").status == 400
    for path, fields, method, by in (
        ("/v1/pay", (), "GET", "203.0.113.7"),
        ("/v1/pay", (), "GET", "2001:db8:1:ffff::1"),
        ("/v1/pay", ("X-API-Key: gold",), "GET", ""),
        ("/v1/pay", (), "HEAD", ""),
        ("/v1/health", (), "POST", ""),
        ("/v1/static/a/b.css", (), "GET", ""),
        ("/v1/x", ("X-Plan: internal",), "PUT", ""),
        ("/v1/x", ("Cookie: staff=yes-7",), "GET", ""),
    ):
        for _ in range(3):
            answer = _ask(gateway, path, *fields, method=method, by=by)
            assert answer.status == 200, (path, fields, method, by)
            assert not any(name.startswith("RateLimit") for name, _ in answer.fields)


def test_what_is_nearly_an_exception_is_counted(gateway: Gateway) -> None:
    """A condition holds for all that the request may be read as, and all of it must hold."""
    for path, fields, method, by in (
        ("/v1/pay", (), "GET", "203.0.112.7"),
        ("/v1/pay", (), "GET", "2001:db8:2::1"),
        ("/v1/health/x", (), "GET", ""),
        ("/v1/static/a", (), "POST", ""),
        ("/v1/x", ("X-Plan: external",), "GET", ""),
        ("/v1/x", ("X-Plan: internal",), "POST", ""),
        ("/v1/x", ("X-Plan: internal", "X-Plan: free"), "GET", ""),
        ("/v1/x", ("Cookie: staff=no",), "GET", ""),
        ("/v1/x", ("Cookie: staff=yes-7; staff=no",), "GET", ""),
        ("/v1/x/y", ("Cookie: staff=yes-7",), "GET", ""),
        ("/v1/pay", ("X-API-Key: gold", "X-API-Key: k1"), "GET", ""),
        ("/v1/static//../pay", (), "GET", ""),
        ("/v1/static/..%2fpay", (), "GET", ""),
    ):
        answer = _ask(gateway, path, *fields, method=method, by=by)
        # It is counted, so it lacks its key; or it cannot be read in one way.
        assert answer.status == 400, (path, fields, method, by)


def test_who_may_use_a_route(gateway: Gateway) -> None:
    """403 for others, as a problem, in the log and in metrics; nothing is counted."""
    assert _ask(gateway, "/admin/x", by="203.0.113.7").status == 200
    assert _ask(gateway, "/admin/x", by="192.0.2.1").status == 200
    for by in ("", "192.0.2.2", "203.0.113.9", "unknown"):
        assert _ask(gateway, "/admin/x", by=by).status == 403
    assert json.loads(_ask(gateway, "/admin/x").body)["title"] == "This client may not use this"
    line = request_lines(gateway, 7)[-1]
    assert (line["status"], line["error"], line["decision"]) == (403, "denied", "refuse")
    assert metric(gateway, "sluice_client_errors_total", kind="denied") == 5


def test_who_gets_nothing_at_all(gateway: Gateway) -> None:
    """On every route, exceptions or not; by address and by what they send."""
    for by in ("198.51.100.3", "198.51.100.66", "::ffff:198.51.100.3", "64:ff9b::c633:6403"):
        assert _ask(gateway, "/tier", by=by).status == 403
    assert _ask(gateway, "/v1/health", by="198.51.100.3").status == 403
    assert _ask(gateway, "/tier", "Cookie: sid=stolen").status == 403
    assert _ask(gateway, "/tier", "Cookie: sid=a; sid=stolen").status == 403
    assert _ask(gateway, "/tier", "Cookie: sid=stolen2").status == 200


def test_a_preflight_request_stays_one(gateway: Gateway, upstream: RecordingUpstream) -> None:
    """What made it one reaches the upstream, and in no other spelling."""
    fields = (
        *PREFLIGHT,
        "Connection: Origin, Access-Control-Request-Method",
        "Access_Control_Request_Method: DELETE",
    )
    assert _ask(gateway, "/v1/a", *fields, method="OPTIONS", by="192.0.2.11").status == 200
    head = upstream.heads[-1].lower()
    assert b"origin: https://shop.example" in head
    assert b"access-control-request-method: put" in head
    assert b"access_control" not in head


def test_who_is_denied_gets_nothing_before(gateway: Gateway) -> None:
    """No limit is asked, no hop counted, and no body waited for."""
    denied = "X-Forwarded-For: 198.51.100.3"
    assert get(gateway.port, "/all", denied, "Max-Forwards: 0", method="OPTIONS").status == 403
    with RawClient(gateway.port) as client:
        client.send(
            b"POST /login HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/json\r\n"
            b"Content-Length: 50\r\nExpect: 100-continue\r\n" + denied.encode() + b"\r\n\r\n"
        )
        assert client.read("POST").status == 403


def test_values_of_a_header_condition(gateway: Gateway) -> None:
    """With an asterisk for any text."""
    assert _ask(gateway, "/tier", "X-Tier: paid_gold").body == b"paid"
    assert _ask(gateway, "/tier", "X-Tier: unpaid_gold").body == b"free"
    assert _ask(gateway, "/tier", "X-Tier: paid_a", "X-Tier: paid_b").body == b"paid"
    assert _ask(gateway, "/tier", "X-Tier: paid_a", "X-Tier: free").status == 400


PREFLIGHT: Final = ("Origin: https://shop.example", "Access-Control-Request-Method: PUT")


def test_preflight_requests_have_a_limit_of_their_own(gateway: Gateway) -> None:
    """Whatever route they take; they lack the key, and spend nothing of the others."""
    answers = [
        _ask(gateway, path, *PREFLIGHT, method="OPTIONS") for path in ("/v1/a", "/all", "/v1/b")
    ]
    assert [one.status for one in answers] == [200, 200, 429]
    assert answers[0].field("RateLimit-Policy").startswith('"preflight"')
    assert _ask(gateway, "/all").status == 200
    # Its fields are free to forge, so the address is counted, and others are not preflight.
    assert _ask(gateway, "/v1/a", *PREFLIGHT, method="OPTIONS", by="192.0.2.9").status == 200
    assert _ask(gateway, "/v1/a", PREFLIGHT[0], method="OPTIONS").status == 400
    assert _ask(gateway, "/v1/a", *PREFLIGHT).status == 400
    origin, asked = PREFLIGHT
    for odd in (
        ("Origin:", asked),
        (origin, "Access-Control-Request-Method: "),
        (origin, asked, "Access-Control-Request-Method: GET"),
        (origin, origin, asked),
    ):
        assert _ask(gateway, "/v1/a", *odd, method="OPTIONS", by="192.0.2.10").status == 400


@pytest.mark.parametrize("workers", [1, 2])
def test_a_list_that_changes(start_gateway: StartGateway, tmp_path: Path, workers: int) -> None:
    """Is taken up within seconds by all workers; one that is broken changes nothing."""
    path = tmp_path / "blocked.txt"
    path.write_text("192.0.2.1\n")
    gateway = start_gateway(
        f"server: {{ workers: {workers}, watch: off }}\ntrusted_proxies: 127.0.0.1\n"
        f"lists: {{ blocked: {{ file: '{path}' }} }}\ndeny: blocked\n"
        "routes: { /**: { respond: hello } }\n"
    )

    def statuses(by: str) -> set[int]:
        return {_ask(gateway, "/", by=by).status for _ in range(8)}

    assert (statuses("192.0.2.1"), statuses("192.0.2.2")) == ({403}, {200})
    aside = tmp_path / "aside"
    aside.write_text("192.0.2.2\n")
    aside.replace(path)
    wait_until(lambda: statuses("192.0.2.2") == {403}, "the new list is in use")
    wait_until(lambda: statuses("192.0.2.1") == {200}, "the old list is not")
    path.write_text("192.0.2.1\n192.0.2.\n")
    wait_until(
        lambda: "is not a network" in gateway.server.stdout + gateway.server.stderr, "it is logged"
    )
    assert (statuses("192.0.2.1"), statuses("192.0.2.2")) == ({200}, {403})


def test_check_reads_lists(tmp_path: Path) -> None:
    """And names the line that is wrong; so does a start."""
    (tmp_path / "blocked.txt").write_text("192.0.2.1\n192.0.2.0/23\nx\n")
    config = tmp_path / "sluice.yaml"
    config.write_text(
        "lists: { blocked: { file: blocked.txt } }\ndeny: blocked\n"
        "routes: { /**: { respond: hello } }\n"
    )
    found = _sluice("check", str(config))
    assert found.returncode == 1
    assert "sluice.yaml:1:27: lists.blocked.file: " in found.stderr
    assert "blocked.txt, line 3: 'x' is not a network" in found.stderr


def test_explain_names_exceptions(tmp_path: Path) -> None:
    """And why somebody is refused."""
    config = tmp_path / "sluice.yaml"
    for name in ("blocked.txt", "revoked.txt"):
        (tmp_path / name).write_text("")
    config.write_text(CONFIG.format(url="http://127.0.0.1:9", folder="."))

    def explained(*words: str) -> str:
        return _sluice("explain", "-c", str(config), *words).stdout

    said = explained("--from", "203.0.113.7", "GET", "/v1/pay")
    assert "Policy api does not count this request: it is one of its exceptions." in said
    assert "answered with 403: This client may not use this." in explained("GET", "/admin/x")
    asked = [word for field in PREFLIGHT for word in ("-H", field)]
    assert "Policy preflight: 2/h per ip" in explained("OPTIONS", "/v1/pay", *asked)
