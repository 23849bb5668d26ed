"""Limits by claims of tokens: whose token is whose, through the front door."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.conftest import StartGateway
from tests.e2e.raw import RecordingUpstream, get
from tests.e2e.signs import log_lines, request_lines
from tests.e2e.test_explain import explained
from tests.issuer import Issuer, token_of
from tests.processes import Gateway, free_port
from tests.tokens.test_verifier import EC, OTHER_RSA, RSA, jwk_of, jwks_of

CONFIG = """
jwt: {jwt}
policies:
  user: {{ limit: 2/h per jwt:sub, if_missing: unauthorized }}
  tenant: {{ limit: 1/h per jwt:tenant.id+jwt:sub, if_missing: skip }}
  secret: {{ limit: 1/h per jwt:sub, secret: true }}
  tiers: {{ limit: 1/h per jwt:sub, tier: jwt:plan, tiers: {{ pro: 2/h }} }}
  lex: {{ throttlex: {{ capacity: 1, per: user, user: "jwt:sub" }}, if_missing: reject }}
key_secret: 0123456789abcdef
routes:
  /user: {{ upstream: {url}, policies: user }}
  /tenant: {{ upstream: {url}, policies: tenant }}
  /secret: {{ upstream: {url}, policies: secret }}
  /tiers: {{ upstream: {url}, policies: tiers }}
  /lex: {{ upstream: {url}, policies: lex }}
"""
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def upstream() -> Iterator[RecordingUpstream]:
    """What all routes lead to."""
    with RecordingUpstream() as recording:
        yield recording


def bearer(claims: dict[str, Any], key: Any = RSA, algorithm: str = "RS256", **more: str) -> str:
    """The field with a token, which is good for an hour unless it says otherwise."""
    body = {"exp": int(time.time()) + 3600, **claims}
    return f"Authorization: Bearer {token_of(body, key, algorithm, more.get('kid', 'one'))}"


def reloaded(gateway: Gateway) -> str:
    """What the gateway says of a reload."""
    fields = {"Content-Type": "application/json"}
    return requests.post(f"{gateway.admin_url}/reload", headers=fields, timeout=30).text


def becomes(gateway: Gateway, path: str, field: str, status: int) -> None:
    """Ask until this is the answer; each token of a test is a user of its own."""
    deadline = time.monotonic() + PATIENCE_S
    while get(gateway.port, path, field).status != status:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_users_have_their_own_counts(
    start_gateway: StartGateway, upstream: RecordingUpstream, tmp_path: Path
) -> None:
    """By what their tokens say; any other token is none, and reaches nothing."""
    with Issuer(jwks_of(jwk_of(RSA, kid="one"))) as issuer:
        jwt = f"{{ keys: '{issuer.url}', algorithms: [RS256], issuer: me, leeway: 0s }}"
        gateway = start_gateway(CONFIG.format(jwt=jwt, url=upstream.url))
        alice = bearer({"sub": "alice", "iss": "me"})
        found = [get(gateway.port, "/user", alice).status for _ in range(3)]
        assert found == [200, 200, 429]
        assert f"\r\n{alice}\r\n".encode() in upstream.heads[-1]
        # Another token of the same user is the same user; another user is not.
        assert get(gateway.port, "/user", bearer({"sub": "alice", "iss": "me", "n": 1})).status == (
            429
        )
        assert get(gateway.port, "/user", bearer({"sub": "bob", "iss": "me"})).status == 200

        before = len(upstream.heads)
        for field in (
            bearer({"sub": "carl", "iss": "other"}),
            bearer({"sub": "carl", "iss": "me", "exp": int(time.time()) - 1}),
            bearer({"sub": "carl", "iss": "me"}, OTHER_RSA),
            bearer({"sub": "carl", "iss": "me"}, kid="unknown"),
            bearer({"sub": ["carl"], "iss": "me"}),
            bearer({"iss": "me"}),
            bearer({"sub": "carl", "iss": "me"}, RSA, "RS512"),
            alice.replace("Bearer", "Basic"),
            alice.rpartition(".")[0] + ".",
            "Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.",
            "Authorization: Bearer",
            "X-Other: 1",
        ):
            refused = get(gateway.port, "/user", field)
            assert refused.status == 401, field
            assert refused.field("WWW-Authenticate") == 'Bearer realm="user"'
        assert len(upstream.heads) == before
        two = get(gateway.port, "/user", alice, bearer({"sub": "bob", "iss": "me"}))
        assert two.status == 400
        assert "jwt:sub" in json.loads(two.body)["title"]

        inner = bearer({"sub": "a", "iss": "me", "tenant": {"id": 7}})
        other = bearer({"sub": "b", "iss": "me", "tenant": {"id": 7}})
        found = [get(gateway.port, "/tenant", field).status for field in (inner, inner, other)]
        assert found == [200, 429, 200]
        assert [get(gateway.port, "/tenant", alice).status for _ in range(2)] == [200, 200]
        assert [get(gateway.port, "/secret", alice).status for _ in range(2)] == [200, 429]
        pro, forged = (
            bearer({"sub": "pro", "iss": "me", "plan": "pro"}, key) for key in (RSA, OTHER_RSA)
        )
        assert [get(gateway.port, "/tiers", pro).status for _ in range(3)] == [200, 200, 429]
        assert [get(gateway.port, "/tiers", alice).status for _ in range(2)] == [200, 429]
        # What is not accepted has no tier either.
        assert [get(gateway.port, "/tiers", forged).status for _ in range(2)] == [200, 429]
        refused = [get(gateway.port, "/lex", alice) for _ in range(2)][1]
        assert json.loads(refused.body)["message"] == "Rate limit exceeded for key: alice"
        assert get(gateway.port, "/lex").status == 400

        file = tmp_path / f"gateway-{gateway.port}.yaml"
        told = explained(file, "/user", "-H", alice)
        assert "Token: accepted.\n" in told
        assert "    Key: jwt:sub=alice. Cost: 1." in told
        told = explained(file, "/user", "-H", bearer({"sub": "x", "iss": "me"}, OTHER_RSA))
        assert "Token: not accepted: its signature is wrong.\n" in told
        assert "The request is answered with 401" in told
        assert "alice" in told or "jwt:sub" in told
        for line in request_lines(gateway, 20):
            assert "eyJ" not in json.dumps(line)


def test_keys_are_rotated_and_outlive_their_issuer(
    start_gateway: StartGateway, upstream: RecordingUpstream
) -> None:
    """An unknown key is fetched, a withdrawn one refused, and an outage changes nothing."""
    with Issuer(jwks_of(jwk_of(RSA, kid="one"))) as issuer:
        jwt = f"{{ keys: '{issuer.url}', algorithms: [RS256, ES256], refresh: 1s }}"
        gateway = start_gateway(CONFIG.format(jwt=jwt, url=upstream.url))
        old = bearer({"sub": "old"})
        assert get(gateway.port, "/user", old).status == 200
        issuer.content = jwks_of(jwk_of(EC, kid="two"))
        new = bearer({"sub": "new"}, EC, "ES256", kid="two")
        becomes(gateway, "/user", new, 200)
        assert get(gateway.port, "/user", old).status == 401
    asked = time.monotonic() + PATIENCE_S
    while not any("last known keys" in str(line) for line in log_lines(gateway)):
        assert time.monotonic() < asked
        time.sleep(0.05)
    assert get(gateway.port, "/user", new).status == 200
    assert get(gateway.port, "/user", bearer({"sub": "n"}, EC, "ES256", kid="two")).status == 200


def test_without_its_issuer_a_gateway_starts(
    start_gateway: StartGateway, upstream: RecordingUpstream
) -> None:
    """It accepts no token until there are keys, and serves everything else meanwhile."""
    port = free_port()
    jwt = f"{{ keys: 'http://127.0.0.1:{port}/keys', algorithms: RS256, refresh: 1s }}"
    gateway = start_gateway(CONFIG.format(jwt=jwt, url=upstream.url))
    alice = bearer({"sub": "alice"})
    assert get(gateway.port, "/user", alice).status == 401
    assert get(gateway.port, "/tenant", alice).status == 200
    with Issuer(jwks_of(jwk_of(RSA, kid="one")), port):
        becomes(gateway, "/user", alice, 200)


def test_a_file_and_a_secret(
    start_gateway: StartGateway, upstream: RecordingUpstream, tmp_path: Path
) -> None:
    """A reload takes up other keys of the file; broken ones are refused, and change nothing."""
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    file = tmp_path / "jwt.pem"
    file.write_bytes(pem)
    jwt = "{ keys: jwt.pem, algorithms: RS256, cookie: token }"
    gateway = start_gateway(CONFIG.format(jwt=jwt, url=upstream.url))
    one = bearer({"sub": "a"}).replace("Authorization: Bearer ", "Cookie: x=1; token=")
    two = bearer({"sub": "b"}, OTHER_RSA).replace("Authorization: Bearer ", "Cookie: token=")
    assert [get(gateway.port, "/user", field).status for field in (one, two)] == [200, 401]
    # A browser's second cookie that is not accepted may be the one that the upstream reads.
    assert get(gateway.port, "/user", f"{one}; token=x").status == 401
    file.write_bytes(pem[:100])
    assert "jwt.pem: " in reloaded(gateway)
    assert get(gateway.port, "/user", one).status == 200
    file.write_bytes(
        OTHER_RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    assert "Renewed and in use: " in reloaded(gateway)
    becomes(gateway, "/user", two, 200)
    assert get(gateway.port, "/user", one).status == 401

    secret = "0123456789abcdef" * 2
    gateway = start_gateway(
        CONFIG.format(jwt=f"{{ secret: '{secret}', algorithms: HS256 }}", url=upstream.url)
    )
    found = [
        get(gateway.port, "/user", bearer({"sub": "a"}, key, "HS256")).status
        for key in (secret, secret + "x")
    ]
    assert found == [200, 401]
