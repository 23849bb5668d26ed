"""Tokens that are accepted, and every way to forge one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.clock import US, ManualClock
from gateway.tokens.keys import KeySet, parse_keys, secret_keys
from gateway.tokens.verifier import (
    MAX_TOKEN,
    REFUSED_MAX,
    TokenKeys,
    TokenRefusal,
    TokenRules,
    TokenVerifier,
    claim_text,
)

NOW_S: Final = 1_800_000_000
SECRET: Final = "0123456789abcdef" * 4
RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC: Final = ec.generate_private_key(ec.SECP256R1())
ED: Final = ed25519.Ed25519PrivateKey.generate()
ED448: Final = ed448.Ed448PrivateKey.generate()
NAMES: Final = ("sub", "tenant.id", "plan")


class Source:
    """Keys that a test changes."""

    def __init__(self, keys: TokenKeys) -> None:
        self.keys = keys
        self.wanted = 0

    def want_newer(self) -> None:
        """Count."""
        self.wanted += 1


def jwk_of(key: Any, **members: object) -> dict[str, object]:
    """A key as an issuer publishes it."""
    named = {
        rsa.RSAPrivateKey: "RS256",
        ec.EllipticCurvePrivateKey: "ES256",
        ed25519.Ed25519PrivateKey: "EdDSA",
        ed448.Ed448PrivateKey: "EdDSA",
    }
    name = next(name for kind, name in named.items() if isinstance(key, kind))
    algorithm = jwt.get_algorithm_by_name(name)
    found: dict[str, object] = json.loads(algorithm.to_jwk(key.public_key()))
    return {**found, **members}


def jwks_of(*keys: Mapping[str, object]) -> bytes:
    """Keys as an issuer publishes them."""
    return json.dumps({"keys": keys}).encode()


def made(
    content: bytes | KeySet, *algorithms: str, clock: ManualClock | None = None, **rules: Any
) -> TokenVerifier:
    """A verifier with these keys."""
    keys = parse_keys(content, algorithms) if isinstance(content, bytes) else content
    return TokenVerifier(
        TokenRules(frozenset(algorithms), **rules),
        Source(keys),
        NAMES,
        clock or ManualClock(NOW_S * US),
    )


def of_rsa(**rules: Any) -> TokenVerifier:
    """A verifier for tokens of one issuer."""
    return made(jwks_of(jwk_of(RSA, kid="one")), "RS256", **rules)


def signed(claims: object, key: Any = RSA, algorithm: str = "RS256", **header: object) -> str:
    """A token of a good issuer."""
    fields = {"kid": "one", **header}
    return jwt.api_jws.encode(
        json.dumps(claims).encode(), key, algorithm, {k: v for k, v in fields.items() if v}
    )


def part(value: object) -> str:
    """A part of a token, encoded."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


GOOD: Final = {"sub": "alice", "exp": NOW_S + 60, "tenant": {"id": 7}}


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [
        *((f"RS{bits}", RSA) for bits in (256, 384, 512)),
        *((f"PS{bits}", RSA) for bits in (256, 384, 512)),
        ("ES256", EC),
        ("ES384", ec.generate_private_key(ec.SECP384R1())),
        ("ES512", ec.generate_private_key(ec.SECP521R1())),
        ("EdDSA", ED),
        ("EdDSA", ED448),
    ],
)
@pytest.mark.parametrize("form", ["jwks", "pem"])
def test_each_algorithm(algorithm: str, key: Any, form: str) -> None:
    """With its key in either form, and not after the key of another."""
    content = jwks_of(jwk_of(key, kid="one"))
    if form == "pem":
        content = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    token = signed(GOOD, key, algorithm)
    assert made(content, algorithm).claims(token) == {"sub": "alice", "tenant.id": "7"}
    other = made(jwks_of(jwk_of(OTHER_RSA, kid="one")), "RS256", algorithm)
    assert other.claims(token) == {}


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret(algorithm: str) -> None:
    """Whatever key ID the token has."""
    keys = secret_keys(SECRET, [algorithm])
    assert made(keys, algorithm).claims(signed(GOOD, SECRET, algorithm))["sub"] == "alice"
    assert made(keys, algorithm).claims(signed(GOOD, SECRET + "x", algorithm)) == {}


def _none(_: str) -> str:
    return f"{part({'alg': 'none', 'kid': 'one'})}.{part(GOOD)}."


def _none_with_a_signature(name: str) -> Callable[[str], str]:
    return lambda good: f"{part({'alg': name, 'kid': 'one'})}.{part(GOOD)}.{good.split('.')[2]}"


def _by_public_key(_: str) -> str:
    """An HMAC with the public key, which everybody knows (RFC 8725, section 2.1)."""
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(GOOD)}"
    return f"{text}.{part(hmac.digest(pem, text.encode(), hashlib.sha256))}"


def _by_own_key(_: str) -> str:
    """The key is in the header, where PyJWT and we do not look."""
    return signed(GOOD, OTHER_RSA, jwk=jwk_of(OTHER_RSA), jku="https://attacker.example/jwks")


def _other_claims(good: str) -> str:
    head, _, signature = good.split(".")
    return f"{head}.{part({**GOOD, 'sub': 'root'})}.{signature}"


@pytest.mark.parametrize(
    ("forge", "refusal"),
    [
        (_none, TokenRefusal.MALFORMED),
        (_none_with_a_signature("none"), TokenRefusal.ALGORITHM),
        (_none_with_a_signature("NONE"), TokenRefusal.ALGORITHM),
        (_none_with_a_signature(""), TokenRefusal.ALGORITHM),
        (_by_public_key, TokenRefusal.ALGORITHM),
        (_by_own_key, TokenRefusal.SIGNATURE),
        (_other_claims, TokenRefusal.SIGNATURE),
        (lambda _: signed(GOOD, RSA, "RS512"), TokenRefusal.ALGORITHM),
        (lambda _: signed(GOOD, RSA, "PS256"), TokenRefusal.ALGORITHM),
        (lambda _: signed(GOOD, OTHER_RSA), TokenRefusal.SIGNATURE),
        (lambda _: signed(GOOD, kid="two"), TokenRefusal.KEY),
        (lambda _: signed(GOOD, crit=["exp"], exp=1), TokenRefusal.CRITICAL),
        (lambda good: good[:-4] + "AAAA", TokenRefusal.SIGNATURE),
        (lambda good: good.rpartition(".")[0] + ".A", TokenRefusal.MALFORMED),
        (lambda good: good.rpartition(".")[0], TokenRefusal.MALFORMED),
        (lambda good: good + ".", TokenRefusal.MALFORMED),
        (lambda good: f"{good}.{part(b'x')}.{part(b'y')}", TokenRefusal.MALFORMED),
        (lambda good: good + "=", TokenRefusal.MALFORMED),
        (lambda good: good.replace(".", " .", 1), TokenRefusal.MALFORMED),
        (lambda good: good + "\n", TokenRefusal.MALFORMED),
        (lambda _: "", TokenRefusal.MALFORMED),
        (lambda _: "a.b.c", TokenRefusal.MALFORMED),
        (lambda _: "é.é.é", TokenRefusal.MALFORMED),
        (lambda _: f"{part([])}.{part(GOOD)}.AAAA", TokenRefusal.MALFORMED),
        (lambda _: f"{part(b'[' * 2000)}.{part(GOOD)}.AAAA", TokenRefusal.MALFORMED),
        (lambda _: f"{part({'alg': ['RS256']})}.{part(GOOD)}.AAAA", TokenRefusal.ALGORITHM),
        (lambda _: f"{part({'alg': {}})}.{part(GOOD)}.AAAA", TokenRefusal.ALGORITHM),
        (lambda _: f"{part({'alg': 'RS256', 'kid': 1})}.{part(GOOD)}.AAAA", TokenRefusal.KEY),
        (
            lambda _: f"{part({'alg': 'RS256', 'kid': 'one'})}.{part([])}.AAAA",
            TokenRefusal.MALFORMED,
        ),
        (
            lambda _: f"{part({'alg': 'RS256', 'kid': 'one'})}.{part(b'[' * 3000)}.AAAA",
            TokenRefusal.MALFORMED,
        ),
        (lambda _: signed(GOOD | {"x": "x" * MAX_TOKEN}), TokenRefusal.TOO_LONG),
        (lambda _: f"{part({'alg': 'RS256'})}.{'A' * 10_000_000}.AAAA", TokenRefusal.TOO_LONG),
    ],
)
def test_forged_and_broken_tokens(forge: Callable[[str], str], refusal: TokenRefusal) -> None:
    """None of them is an identity; each time, also when it comes again."""
    the_verifier = of_rsa()
    token = forge(signed(GOOD))
    for _ in range(2):
        assert the_verifier.judge(token) is refusal
        assert the_verifier.claims(token) == {}
    assert the_verifier.claims(signed(GOOD)) == {"sub": "alice", "tenant.id": "7"}


@given(st.binary(max_size=200), st.integers(0, 400))
def test_no_change_of_a_token_is_accepted(data: bytes, at: int) -> None:
    """Bytes put anywhere into a good token, and tokens of any bytes, are refused or the same."""
    token = signed(GOOD, SECRET, "HS256")
    the_verifier = made(secret_keys(SECRET, ["HS256"]), "HS256")
    changed = token[:at] + data.decode("latin-1") + token[at + len(data) :]
    judged = the_verifier.judge(changed)
    assert isinstance(judged, TokenRefusal) or judged == {"sub": "alice", "tenant.id": "7"}
    if not isinstance(judged, TokenRefusal):
        assert changed.rpartition(".")[0] == token.rpartition(".")[0]
    assert the_verifier.claims(data.decode("latin-1")) == {}


@pytest.mark.parametrize(
    ("claims", "refusal"),
    [
        ({"exp": NOW_S - 31}, TokenRefusal.EXPIRED),
        ({"exp": NOW_S - 30}, TokenRefusal.EXPIRED),
        ({"exp": NOW_S - 29}, None),
        ({"exp": -(2**60)}, TokenRefusal.TIMES),
        ({"exp": 0}, TokenRefusal.EXPIRED),
        ({"exp": NOW_S + 0.5}, None),
        ({"exp": str(NOW_S + 60)}, TokenRefusal.TIMES),
        ({"exp": True}, TokenRefusal.TIMES),
        ({"exp": None}, TokenRefusal.TIMES),
        ({"exp": [NOW_S + 60]}, TokenRefusal.TIMES),
        ({"exp": float("inf")}, TokenRefusal.MALFORMED),
        ({"exp": float("nan")}, TokenRefusal.MALFORMED),
        ({"exp": 10**300}, TokenRefusal.TIMES),
        ({"nbf": NOW_S + 31}, TokenRefusal.EARLY),
        ({"nbf": NOW_S + 30}, None),
        ({"nbf": "soon"}, TokenRefusal.TIMES),
        ({"iat": NOW_S + 1000}, None),
        ({}, None),
    ],
)
def test_times(claims: dict[str, object], refusal: TokenRefusal | None) -> None:
    """They are numbers, and are kept, give or take the leeway; without any, a token never ends."""
    token = signed({"sub": "a", **claims})
    judged = of_rsa(leeway_us=30 * US).judge(token)
    assert judged == (refusal or {"sub": "a"})


@pytest.mark.parametrize(
    ("claims", "refusal"),
    [
        ({"iss": "https://a", "aud": "shop"}, None),
        ({"iss": "https://a", "aud": ["x", "admin"]}, None),
        ({"iss": "https://a/", "aud": "shop"}, TokenRefusal.ISSUER),
        ({"iss": ["https://a"], "aud": "shop"}, TokenRefusal.ISSUER),
        ({"aud": "shop"}, TokenRefusal.ISSUER),
        ({"iss": "https://a"}, TokenRefusal.AUDIENCE),
        ({"iss": "https://a", "aud": "sho"}, TokenRefusal.AUDIENCE),
        ({"iss": "https://a", "aud": {"shop": 1}}, TokenRefusal.AUDIENCE),
        ({"iss": "https://a", "aud": [["shop"], None, 1]}, TokenRefusal.AUDIENCE),
    ],
)
def test_issuer_and_audience(claims: dict[str, object], refusal: TokenRefusal | None) -> None:
    """Exactly the issuer, and one of the audiences."""
    the_verifier = of_rsa(issuer="https://a", audiences=frozenset({"shop", "admin"}))
    assert the_verifier.judge(signed({"sub": "a", **claims})) == (refusal or {"sub": "a"})


@pytest.mark.parametrize(
    ("body", "name", "text"),
    [
        ({"sub": "a"}, "sub", "a"),
        ({"sub": ""}, "sub", ""),
        ({"sub": 17}, "sub", "17"),
        ({"sub": True}, "sub", ""),
        ({"sub": None}, "sub", ""),
        ({"sub": 1.5}, "sub", ""),
        ({"sub": ["a"]}, "sub", ""),
        ({"sub": {"a": "b"}}, "sub", ""),
        ({"a": {"b": {"c": "d"}}}, "a.b.c", "d"),
        ({"a": {"b": "d"}}, "a.b.c", ""),
        ({"a": ["b"]}, "a.0", ""),
        ({"a.b": "whole", "a": {"b": "inner"}}, "a.b", "whole"),
        ({}, "a.b", ""),
        ({"": {"": "x"}}, ".", "x"),
    ],
)
def test_the_text_of_a_claim(body: dict[str, object], name: str, text: str) -> None:
    """Text, or a whole number; anything else is no identity."""
    assert claim_text(body, name) == text


class CountingKeys:
    """Keys that count how often they are looked up."""

    def __init__(self, keys: TokenKeys) -> None:
        self.keys = keys
        self.looked_up = 0

    def find(self, kid: str | None, algorithm: str) -> Sequence[Callable[[bytes, bytes], bool]]:
        """Count, and look up."""
        self.looked_up += 1
        return self.keys.find(kid, algorithm)


def test_a_signature_is_verified_once() -> None:
    """Until the token expires: then it is refused although it was cached."""
    clock = ManualClock(NOW_S * US)
    keys = CountingKeys(parse_keys(jwks_of(jwk_of(RSA, kid="one")), ["RS256"]))
    rules = TokenRules(frozenset({"RS256"}), leeway_us=5 * US)
    the_verifier = TokenVerifier(rules, Source(keys), NAMES, clock)
    token = signed(GOOD)
    for _ in range(3):
        assert the_verifier.claims(token)["sub"] == "alice"
    clock.advance(seconds=64)
    assert the_verifier.claims(token)["sub"] == "alice"
    assert keys.looked_up == 1
    clock.advance(seconds=1)
    assert the_verifier.claims(token) == {}
    assert keys.looked_up == 2
    assert len(the_verifier) == 0


@pytest.mark.parametrize("bound", [{"known_max": 10}, {"known_characters": 1000}])
def test_the_cache_is_bounded(bound: dict[str, int]) -> None:
    """In tokens and in characters; one that is used again and again stays."""
    keys = CountingKeys(secret_keys(SECRET, ["HS256"]))
    rules = TokenRules(frozenset({"HS256"}))
    the_verifier = TokenVerifier(rules, Source(keys), NAMES, ManualClock(NOW_S * US), **bound)
    tokens = [signed({"sub": f"u{number}"}, SECRET, "HS256") for number in range(30)]
    for token in tokens:
        the_verifier.claims(token)
        the_verifier.claims(tokens[0])
    assert keys.looked_up == 30
    assert 0 < len(the_verifier) <= 10
    the_verifier.claims(tokens[1])
    assert keys.looked_up == 31


def test_refused_tokens_are_bounded() -> None:
    """A flood of forged tokens costs no memory, and one that comes again no signature."""
    the_verifier = of_rsa()
    head, body, signature = signed(GOOD).split(".")
    for number in range(REFUSED_MAX + 100):
        forged = f"{head}.{part({**GOOD, 'n': number})}.{signature}"
        assert the_verifier.claims(forged) == {}
    assert 0 < len(the_verifier._refused) <= REFUSED_MAX
    assert body


def test_other_keys_change_what_is_accepted() -> None:
    """Cached tokens included: an issuer withdraws a key for a reason."""
    source = Source(parse_keys(jwks_of(jwk_of(RSA, kid="one")), ["RS256"]))
    the_verifier = TokenVerifier(
        TokenRules(frozenset({"RS256"})), source, NAMES, ManualClock(NOW_S * US)
    )
    old, new = signed(GOOD), signed(GOOD, OTHER_RSA, kid="two")
    assert (the_verifier.claims(old)["sub"], the_verifier.claims(new)) == ("alice", {})
    assert source.wanted == 1
    source.keys = parse_keys(jwks_of(jwk_of(OTHER_RSA, kid="two")), ["RS256"])
    assert (the_verifier.claims(old), the_verifier.claims(new)["sub"]) == ({}, "alice")
    assert source.wanted == 2
