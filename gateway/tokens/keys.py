"""Keys that signatures of tokens are verified with, by PyJWT.

The configuration says which algorithms there may be; a key is for those of them that fit its type
and, if it names one, for that one only. So no token can choose how it is verified: `alg: none` and
an HMAC with a public key (RFC 8725, section 3.1) do not come into question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from cryptography.x509 import load_pem_x509_certificate
from jwt.algorithms import Algorithm, get_default_algorithms
from jwt.exceptions import PyJWTError

MAX_KEYS: Final = 64
"""Keys of one set; further ones are ignored."""
MAX_TRIED: Final = 4
"""Keys that a token without a key ID is tried with."""
MIN_RSA_BITS: Final = 2048
"""RFC 7518, section 3.3."""

_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z ]+)-----[^-]{1,65536}-----END \1-----", re.MULTILINE)
_SECRET_MEMBERS: Final = frozenset(("d", "p", "q", "dp", "dq", "qi", "oth", "k"))
_FAMILIES: Final = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("EdDSA",)}
"""Beginnings of the names of algorithms, by the type of a JWK (RFC 7518, section 6.1)."""

Verify = Callable[[bytes, bytes], bool]
"""Returns whether a signature, the second argument, is that of what was signed, the first."""


class TokenKeysError(ValueError):
    """Text that is not usable as keys."""


class TokenKey(NamedTuple):
    """One key.

    Attributes:
        kid: its ID; None if it has none.
        verifiers: by the name of the algorithm.
    """

    kid: str | None
    verifiers: Mapping[str, Verify]


class KeySet:
    """The keys of an issuer. Immutable."""

    __slots__ = ("_by_kid", "_nameless", "_tried")

    def __init__(self, keys: Sequence[TokenKey]) -> None:
        self._by_kid: dict[str, list[TokenKey]] = {}
        for key in keys:
            if key.kid is not None:
                self._by_kid.setdefault(key.kid, []).append(key)
        self._nameless = [key for key in keys if key.kid is None]
        self._tried = list(keys)

    def __len__(self) -> int:
        return len(self._tried)

    def find(self, kid: str | None, algorithm: str) -> list[Verify]:
        """Return what may verify a token; empty if there is no such key.

        Args:
            kid: the ID of the key, as the token has it; None if it has none.
            algorithm: the algorithm, as the token has it.
        """
        keys = self._tried if kid is None else self._by_kid.get(kid, self._nameless)
        found = [key.verifiers[algorithm] for key in keys if algorithm in key.verifiers]
        return found[:MAX_TRIED]


def secret_keys(secret: str, algorithms: Sequence[str]) -> KeySet:
    """Return the only key of tokens that are signed with a secret.

    Raises:
        TokenKeysError: it looks like a public key, which is no secret.
    """
    data = secret.encode("utf-8", "surrogatepass")
    return KeySet([TokenKey(None, _verifiers(data, algorithms))])


def parse_keys(content: bytes, algorithms: Sequence[str]) -> KeySet:
    """Return the keys of a JSON Web Key Set, or of one or several PEM blocks.

    Args:
        content: a file, or what an issuer publishes.
        algorithms: the names of those that may be used.

    Raises:
        TokenKeysError: there are no usable keys.
    """
    if content.lstrip().startswith(b"{"):
        keys = _of_jwks(content, algorithms)
    elif b"-----BEGIN " in content:
        keys = _of_pem(content, algorithms)
    else:
        raise TokenKeysError("this is neither a JSON Web Key Set nor PEM")
    if not keys:
        raise TokenKeysError(f"there is no public key for {' or '.join(algorithms)}")
    return KeySet(keys[:MAX_KEYS])


def _of_jwks(content: bytes, algorithms: Sequence[str]) -> list[TokenKey]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise TokenKeysError("this is not JSON") from error
    listed = document.get("keys", [document] if "kty" in document else None)
    if not isinstance(listed, list):
        raise TokenKeysError("this is not a JSON Web Key Set: it has no list of keys")
    made = [_of_jwk(one, algorithms) for one in listed if isinstance(one, dict)]
    return [key for key in made if key is not None]


def _of_jwk(jwk: dict[str, Any], algorithms: Sequence[str]) -> TokenKey | None:
    """Return a key; None for one of another type or for another use, or that is not valid."""
    kid, usages = jwk.get("kid"), jwk.get("key_ops")
    is_for_signatures = jwk.get("use", "sig") == "sig"
    if isinstance(usages, list) and "verify" not in usages:
        is_for_signatures = False
    families = _FAMILIES.get(str(jwk.get("kty")), ())
    names = [
        name
        for name in algorithms
        if name.startswith(families) and jwk.get("alg", name) in {name, *families}
    ]
    if not names or not is_for_signatures or not isinstance(kid, str | None):
        return None
    public = {name: value for name, value in jwk.items() if name not in _SECRET_MEMBERS}
    try:
        key = _algorithm(names[0]).from_jwk(public)
        verifiers = _verifiers(key, names, is_listed=True)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError):
        return None
    return TokenKey(kid, verifiers) if verifiers else None


def _of_pem(content: bytes, algorithms: Sequence[str]) -> list[TokenKey]:
    keys: list[TokenKey] = []
    for block in _BLOCK.finditer(content):
        what = block[1].decode("ascii")
        if "PRIVATE KEY" in what:
            raise TokenKeysError("this is a private key; the gateway needs the public one")
        try:
            if what == "CERTIFICATE":
                key: Any = load_pem_x509_certificate(block[0]).public_key()
            else:
                key = load_pem_public_key(block[0])
        except (UnsupportedAlgorithm, ValueError) as error:
            raise TokenKeysError(f"this {what.lower()} cannot be read") from error
        verifiers = _verifiers(key, algorithms, is_listed=True)
        if verifiers:
            keys.append(TokenKey(None, verifiers))
    return keys


def _verifiers(
    key: Any, algorithms: Sequence[str], *, is_listed: bool = False
) -> dict[str, Verify]:
    """Return what verifies with a key, by algorithm; only those that fit its type.

    Args:
        key: a public key, or the bytes of a secret.
        algorithms: the names of those that may be used.
        is_listed: whether the key may be for none of them.

    Raises:
        TokenKeysError: the key is for none of them.
    """
    if isinstance(key, RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        message = f"an RSA key of {key.key_size} bits is too short; use {MIN_RSA_BITS} or more"
        raise TokenKeysError(message)
    found: dict[str, Verify] = {}
    for name in algorithms:
        algorithm = _algorithm(name)
        try:
            prepared = algorithm.prepare_key(key)
        except (PyJWTError, TypeError, ValueError) as error:
            if not is_listed:
                raise TokenKeysError(str(error)) from error
            continue
        found[name] = partial(_verify, algorithm, prepared)
    return found


def _verify(algorithm: Algorithm, key: Any, signed: bytes, signature: bytes) -> bool:
    return algorithm.verify(signed, key, signature)


def _algorithm(name: str) -> Algorithm:
    return get_default_algorithms()[name]
