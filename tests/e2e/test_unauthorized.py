"""`if_missing: unauthorized`: a client without credentials is told which ones are asked for."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import StartGateway
from tests.e2e.raw import RecordingUpstream, get
from tests.e2e.signs import metric, request_lines
from tests.e2e.test_explain import explained

CONFIG = """
policies:
  token: {{ limit: 5/h per header:Authorization, if_missing: unauthorized }}
  keys: {{ limit: 1/h per header:X-API-Key+cookie:sid+ip, if_missing: unauthorized }}
  query: {{ limit: 1/h per query:api_key, if_missing: unauthorized }}
  shadow: {{ limit: 1/h per query:other, if_missing: unauthorized, mode: shadow }}
  user:
    {{ throttlex: {{ per: [user, route], user: "header:X-User" }}, if_missing: unauthorized }}
routes:
  /token: {{ upstream: {url}, policies: token }}
  /keys: {{ upstream: {url}, policies: keys }}
  /query: {{ upstream: {url}, policies: query }}
  /shadow: {{ upstream: {url}, policies: [shadow] }}
  /user: {{ upstream: {url}, policies: [user] }}
"""


def test_a_request_without_credentials_gets_a_challenge(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """401 with `WWW-Authenticate` for what is missing; nothing reaches the upstream or counts."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(CONFIG.format(url=upstream.url))
        refused = get(gateway.port, "/token")
        assert refused.status == 401
        assert refused.field("WWW-Authenticate") == 'Bearer realm="token"'
        assert refused.field("Content-Type") == "application/problem+json"
        assert refused.field("Cache-Control") == "no-store"
        document = json.loads(refused.body)
        assert (document["status"], document["title"]) == (
            401,
            "The request lacks what it is counted by: header:authorization",
        )
        assert get(gateway.port, "/token", "Authorization:").status == 401
        assert get(gateway.port, "/keys", "X-API-Key: a").all("WWW-Authenticate") == [
            'ApiKey realm="keys", in="header", name="x-api-key"',
            'ApiKey realm="keys", in="cookie", name="sid"',
        ]
        # An empty value may be the one that an upstream uses.
        both = get(gateway.port, "/keys", "X-API-Key: a", "Cookie: sid=; sid=b")
        assert both.status == 401
        assert get(gateway.port, "/query?x=1").all("WWW-Authenticate") == [
            'ApiKey realm="query", in="query", name="api_key"'
        ]
        assert get(gateway.port, "/user").field("WWW-Authenticate").endswith('name="x-user"')
        assert upstream.heads == []
        # Several values are not none, and what is only tried out refuses nothing.
        assert get(gateway.port, "/query?api_key=a&api_key=b").status == 400
        assert get(gateway.port, "/shadow").status == 200
        passed = get(gateway.port, "/token", "Authorization: Bearer a")
        assert (passed.status, passed.field("X-RateLimit-Remaining")) == (200, "4")

        line = request_lines(gateway, 9)[0]
        told = {name: line[name] for name in ("status", "error", "decision", "policy")}
        assert told == {"status": 401, "error": "key", "decision": "refuse", "policy": "token"}
        assert metric(gateway, "sluice_client_errors_total", kind="key") == 7
        count = metric(gateway, "sluice_decisions_total", policy="token", decision="refuse")
        assert count == 2
        told_of = explained(tmp_path / f"gateway-{gateway.port}.yaml", "/token")
        assert (
            "The request is answered with 401: The request lacks what it is counted by: "
            "header:authorization." in told_of
        )
