"""Keeps the keys of a policy out of stores and logs.

An identity is replaced by an HMAC of it. Whoever reads a store, a log or the answer to a look-up
cannot tell, or try out, which key it stands for without the secret, and gateways with one secret
share their counts:

    printf %s 'header:x-api-key=a' | openssl dgst -sha256 -hmac "$SLUICE_KEY_SECRET"

The first 32 digits follow `hmac:`. A client that sends such text as its key gets the hash of it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from typing import Any, Final

from gateway.routing.keys import Key
from gateway.routing.path import is_plain
from gateway.routing.path_parameter import parameters_of

HIDDEN: Final = "***"
KNOWN_MAX: Final = 4096
"""How many hashes are cached. An HMAC takes 2 µs, a lookup 0.05 µs."""

_MARK: Final = "hmac:"
_DIGITS: Final = 32
"""128 bits: two of 2**40 keys have one hash with a probability of 2**-49."""


class KeyHash:
    """Replaces identities by their hash.

    Args:
        secret: the secret of all gateways that share a store.
    """

    __slots__ = ("_known", "_secret")

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode("utf-8", "surrogatepass")
        self._known: dict[str, str] = {}

    def __call__(self, identity: str) -> str:
        """Return the hash of an identity."""
        known = self._known.get(identity)
        if known is None:
            digest = hmac.digest(self._secret, identity.encode("ascii"), "sha256").hex()
            known = f"{_MARK}{digest[:_DIGITS]}"
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[identity] = known
        return known


def hashed(key_of: Callable[[Any], Key], key_hash: Callable[[str], str]) -> Callable[[Any], Key]:
    """Return a key function whose identities are hashed."""

    def key(request: Any) -> Key:
        found = key_of(request)
        if isinstance(found, str):
            return key_hash(found)
        return tuple(map(key_hash, found)) if isinstance(found, tuple) else found

    return key


def compile_logged_target(pattern: str, words: Iterable[str]) -> Callable[[str], str] | None:
    """Return a function that removes secret keys from a request target.

    Args:
        pattern: the path of the route.
        words: key words of secret policies.

    Returns:
        None if none of them is in the target.
    """
    split = [word.partition(":") for word in words]
    hides_query = any(kind == "query" for kind, _, _ in split)
    parameters = parameters_of(pattern)
    indexes = [parameters[name] for kind, colon, name in split if kind == "path" and colon]
    if not (hides_query or indexes):
        return None

    def logged(target: str) -> str:
        path, mark, query = target.partition("?")
        if indexes:
            path = _without_segments(path, indexes)
        return path + mark + (HIDDEN if query and hides_query else query)

    return logged


def _without_segments(path: str, indexes: Iterable[int]) -> str:
    if not is_plain(path):
        # Where its segments begin depends on the reader.
        return f"/{HIDDEN}"
    segments = path[1:].split("/")
    for index in indexes:
        segments[index] = HIDDEN
    return "/" + "/".join(segments)
