"""Keys of issuers, and what is none."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from gateway.tokens.keys import MAX_KEYS, MAX_TRIED, TokenKeysError, parse_keys, secret_keys
from tests.tokens.test_verifier import EC, ED, OTHER_RSA, RSA, jwk_of, jwks_of

ALL = ["RS256", "ES256", "EdDSA"]
SHORT = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - refused


def _pem(key: object = RSA) -> bytes:
    return key.public_key().public_bytes(  # type: ignore[attr-defined, no-any-return]
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )


def test_keys_are_found_by_their_id_and_algorithm() -> None:
    """A key is for the algorithms of its type, and for the one that it names only."""
    keys = parse_keys(
        jwks_of(
            jwk_of(RSA, kid="r", alg="RS256"),
            jwk_of(EC, kid="e"),
            jwk_of(ED, kid="d", use="sig", key_ops=["verify"]),
        ),
        [*ALL, "RS512"],
    )
    assert len(keys) == 3
    assert [len(keys.find("r", name)) for name in ("RS256", "RS512", "ES256")] == [1, 0, 0]
    assert [len(keys.find(kid, "ES256")) for kid in ("e", "d", "x")] == [1, 0, 0]
    assert [len(keys.find(None, name)) for name in (*ALL, "HS256")] == [1, 1, 1, 0]


def test_a_token_without_an_id_is_tried_with_few_keys() -> None:
    """Each is a signature to verify, for anyone who sends a token."""
    keys = parse_keys(jwks_of(*(jwk_of(RSA, kid=f"k{n}") for n in range(200))), ["RS256"])
    assert len(keys) == MAX_KEYS
    assert len(keys.find(None, "RS256")) == MAX_TRIED


def test_keys_without_an_id_fit_any() -> None:
    """A file of PEM has no IDs."""
    keys = parse_keys(_pem() + b"\n" + _pem(OTHER_RSA) + _pem(EC), ["RS256"])
    assert len(keys) == 2
    assert len(keys.find("any", "RS256")) == len(keys.find(None, "RS256")) == 2


def test_a_certificate_has_a_key() -> None:
    """As some issuers publish it."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer")])
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, RSA.public_key(), 1, begin, begin.replace(year=2030))
        .sign(RSA, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    assert len(parse_keys(certificate, ["RS256"])) == 1


def test_a_single_key_is_a_set() -> None:
    """A JWK alone."""
    assert len(parse_keys(json.dumps(jwk_of(RSA)).encode(), ["RS256"])) == 1


@pytest.mark.parametrize(
    "members",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"alg": "RS512"},
        {"alg": "none"},
        {"kid": 5},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "EC"},
        {"kty": None},
        {"n": "!"},
        {"n": 5},
        {"e": ""},
        jwk_of(SHORT),
    ],
)
def test_keys_that_are_left_out(members: dict[str, object]) -> None:
    """For another use or algorithm, symmetric, or broken: the others are used."""
    good = jwk_of(OTHER_RSA, kid="good")
    keys = parse_keys(jwks_of(jwk_of(RSA, **members), good), ["RS256"])
    assert len(keys) == 1
    assert keys.find("good", "RS256")


def test_a_private_key_in_a_set_is_its_public_part() -> None:
    """An issuer's mistake is not repeated: the gateway never has it."""
    keys = parse_keys(jwks_of(jwk_of(RSA, kid="k", d="AQAB", p="AQAB", q="AQAB")), ["RS256"])
    assert len(keys.find("k", "RS256")) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "neither a JSON Web Key Set nor PEM"),
        (b"not a key", "neither a JSON Web Key Set nor PEM"),
        (b"{", "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
        (b"{}", "no list of keys"),
        (b'{"keys": {}}', "no list of keys"),
        (b'{"keys": [1, null, {}]}', "no public key for RS256"),
        (jwks_of(jwk_of(EC)), "no public key for RS256"),
        (_pem(EC), "no public key for RS256"),
        (_pem(SHORT), "1024 bits is too short"),
        (_pem().replace(b"MII", b"AAA"), "public key cannot be read"),
        (
            RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "this is a private key",
        ),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "cannot be read"),
    ],
)
def test_what_is_not_keys(content: bytes, message: str) -> None:
    """It is said why."""
    with pytest.raises(TokenKeysError, match=message):
        parse_keys(content, ["RS256"])


def test_a_public_key_is_no_secret() -> None:
    """Everybody could sign tokens with it."""
    for text in (_pem().decode(), json.dumps(jwk_of(RSA))):
        with pytest.raises(TokenKeysError, match="should not be used"):
            secret_keys(text, ["HS256"])
