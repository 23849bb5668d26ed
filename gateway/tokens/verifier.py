"""Which claims of a client's token can be believed (RFC 7519, RFC 8725).

A token is accepted only if all of it is as the configuration says; there is no partial trust. The
claims of accepted tokens are cached until they expire, so that a signature is verified once, not
for each request. What costs least is checked first.

The text of a token is read strictly: three parts of base64url without padding, at most
`MAX_TOKEN` characters, JSON objects in the first two.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Any, Final, NamedTuple, Protocol

from gateway.base.clock import US, Clock

MAX_TOKEN: Final = 8192
"""Characters of a token; longer ones are refused unread."""
KNOWN_MAX: Final = 10_000
KNOWN_CHARACTERS: Final = 16 * 1024 * 1024
"""How many accepted tokens are cached, and how many characters they have together."""
REFUSED_MAX: Final = 1024
REFUSED_LENGTH: Final = 2048
"""How many tokens with a wrong signature are cached, and the longest of them."""

_parts: Final = re.compile(r"([A-Za-z0-9_-]++)\.([A-Za-z0-9_-]++)\.([A-Za-z0-9_-]++)").fullmatch
_NOTHING: Final[Mapping[str, str]] = {}

Claims = Mapping[str, str]
"""The text of each claim that limits count by and that a token has, by its name."""


class TokenRefusal(Enum):
    """Why a token is no identity; the values are the ends of sentences."""

    MALFORMED = "it is malformed"
    TOO_LONG = f"it is longer than {MAX_TOKEN} characters"
    ALGORITHM = "its algorithm is not one of those that are configured"
    CRITICAL = "its header requires an extension"
    KEY = "no key is known that could have signed it"
    SIGNATURE = "its signature is wrong"
    EXPIRED = "it has expired"
    EARLY = "it is not valid yet"
    TIMES = "its times are not numbers"
    ISSUER = "it is of another issuer"
    AUDIENCE = "it is for another audience"


class _TokenHead(NamedTuple):
    """A token whose header is as it must be.

    Attributes:
        signed: the part that is signed.
        body: its body, encoded.
        signature: its signature, encoded.
        verifiers: what could verify it.
    """

    signed: str
    body: str
    signature: str
    verifiers: Sequence[Callable[[bytes, bytes], bool]]


class TokenKeys(Protocol):
    """Keys as `gateway.tokens.keys.KeySet` has them."""

    def find(self, kid: str | None, algorithm: str) -> Sequence[Callable[[bytes, bytes], bool]]:
        """See there."""


class KeySource(Protocol):
    """Where the keys come from.

    Attributes:
        keys: the present ones; another object if they have changed.
    """

    keys: TokenKeys

    def want_newer(self) -> None:
        """Look for newer keys soon: there is a token by a key that is not known."""


class TokenRules(NamedTuple):
    """What a token must be like.

    Attributes:
        algorithms: the names of those that may be used.
        issuer: who must have issued it; empty for anyone with a key.
        audiences: whom it must be for, at least one of these; empty for anyone.
        leeway_us: by how much clocks may differ, in microseconds.
    """

    algorithms: frozenset[str]
    issuer: str = ""
    audiences: frozenset[str] = frozenset()
    leeway_us: int = 0


class TokenVerifier:
    """Reads claims out of tokens.

    Args:
        rules: what tokens must be like.
        source: where the keys come from.
        names: the names of the claims that are read.
        clock: the time since 1970.
        known_max: how many accepted tokens are cached.
        known_characters: how many characters they have together.
    """

    __slots__ = (
        "_characters",
        "_clock",
        "_keys",
        "_known",
        "_known_characters",
        "_known_max",
        "_names",
        "_refused",
        "_rules",
        "_source",
    )

    def __init__(
        self,
        rules: TokenRules,
        source: KeySource,
        names: Sequence[str],
        clock: Clock,
        *,
        known_max: int = KNOWN_MAX,
        known_characters: int = KNOWN_CHARACTERS,
    ) -> None:
        self._rules = rules
        self._source = source
        self._names = tuple(names)
        self._clock = clock
        self._keys = source.keys
        self._known: OrderedDict[str, tuple[float, Claims]] = OrderedDict()
        self._characters = 0
        self._known_max = known_max
        self._known_characters = known_characters
        self._refused: set[str] = set()

    def __len__(self) -> int:
        return len(self._known)

    def claims(self, token: str) -> Claims:
        """Return the claims of a token; empty if it is not accepted."""
        if self._source.keys is not self._keys:
            self._forget()
        known = self._known.get(token)
        if known is not None:
            expires_us, claims = known
            if self._clock() < expires_us:
                self._known.move_to_end(token)
                return claims
            del self._known[token]
            self._characters -= len(token)
        judged = self.judge(token)
        return _NOTHING if isinstance(judged, TokenRefusal) else judged

    def judge(self, token: str) -> Claims | TokenRefusal:
        """Return the claims of a token that is not cached, or why it is not accepted."""
        if self._source.keys is not self._keys:
            self._forget()
        head = self._head(token)
        if isinstance(head, TokenRefusal):
            return head
        if token in self._refused:
            return TokenRefusal.SIGNATURE
        body, signature = _json_object(head.body), _decoded(head.signature)
        if body is None or signature is None:
            return TokenRefusal.MALFORMED
        refusal = self._check(body)
        if refusal is not None:
            return refusal
        signed = head.signed.encode("ascii")
        if not any(verify(signed, signature) for verify in head.verifiers):
            self._refuse(token)
            return TokenRefusal.SIGNATURE
        texts = ((name, claim_text(body, name)) for name in self._names)
        claims = {name: text for name, text in texts if text}
        self._accept(token, body.get("exp", inf) * US + self._rules.leeway_us, claims)
        return claims

    def _head(self, token: str) -> _TokenHead | TokenRefusal:
        """Take a token apart, and find what could verify it."""
        if len(token) > MAX_TOKEN:
            return TokenRefusal.TOO_LONG
        parts = _parts(token)
        header = _json_object(parts[1]) if parts is not None else None
        if parts is None or header is None:
            return TokenRefusal.MALFORMED
        algorithm, kid = header.get("alg"), header.get("kid")
        if "crit" in header or "b64" in header:
            return TokenRefusal.CRITICAL
        if not isinstance(algorithm, str) or algorithm not in self._rules.algorithms:
            return TokenRefusal.ALGORITHM
        verifiers = self._keys.find(kid, algorithm) if isinstance(kid, str | None) else ()
        if not verifiers:
            self._source.want_newer()
            return TokenRefusal.KEY
        return _TokenHead(token[: parts.end(2)], parts[2], parts[3], verifiers)

    def _check(self, body: Mapping[str, Any]) -> TokenRefusal | None:
        """Check the registered claims (RFC 7519, section 4.1); None if they are as they must be."""
        now_us, leeway_us = self._clock(), self._rules.leeway_us
        expires, begins = body.get("exp", inf), body.get("nbf", 0)
        if not (_is_time(expires) and _is_time(begins)):
            return TokenRefusal.TIMES
        if now_us >= expires * US + leeway_us:
            return TokenRefusal.EXPIRED
        if now_us < begins * US - leeway_us:
            return TokenRefusal.EARLY
        if self._rules.issuer and body.get("iss") != self._rules.issuer:
            return TokenRefusal.ISSUER
        if self._rules.audiences:
            named = body.get("aud")
            audiences = named if isinstance(named, list) else [named]
            if not any(isinstance(one, str) and one in self._rules.audiences for one in audiences):
                return TokenRefusal.AUDIENCE
        return None

    def _accept(self, token: str, expires_us: float, claims: Claims) -> None:
        self._known[token] = expires_us, claims
        self._characters += len(token)
        while len(self._known) > self._known_max or self._characters > self._known_characters:
            oldest, _ = self._known.popitem(last=False)
            self._characters -= len(oldest)

    def _refuse(self, token: str) -> None:
        if len(token) <= REFUSED_LENGTH:
            if len(self._refused) >= REFUSED_MAX:
                self._refused.clear()
            self._refused.add(token)

    def _forget(self) -> None:
        """Use the present keys: what others have signed may no longer be accepted, or now be."""
        self._keys = self._source.keys
        self._known.clear()
        self._characters = 0
        self._refused.clear()


def claim_text(body: Mapping[str, Any], name: str) -> str:
    """Return the text of a claim; empty if there is none, or if it is neither text nor a number.

    Args:
        body: the claims.
        name: the whole name of a claim, or names joined by dots for one inside another.
    """
    value: Any = body
    if name in body:
        value = body[name]
    else:
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def _is_time(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return value == inf or abs(value) < 2**53


def _decoded(part: str) -> bytes | None:
    try:
        return urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        return None


def _json_object(part: str) -> dict[str, Any] | None:
    data = _decoded(part)
    try:
        found = json.loads(data or b"", parse_constant=_not_json)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _not_json(constant: str) -> object:
    """Refuse `NaN` and `Infinity`, which Python would read."""
    raise ValueError(constant)
