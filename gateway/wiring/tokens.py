"""Makes what reads claims of tokens from a configuration."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.clock import US, wall_us
from gateway.base.errors import StartError
from gateway.base.install_hint import install_hint
from gateway.base.threads import in_thread
from gateway.config.checking.key_checks import claims_of
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.tokens import JwtConfig
from gateway.config.values.findings import Finding
from gateway.routing.claims import compile_claim, compile_token
from gateway.routing.request_view import RequestView
from gateway.routing.values import Read
from gateway.tokens.verifier import TokenRefusal, TokenRules, TokenVerifier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.tokens.source import TokenSource

KEYS: Final = "gateway.tokens.keys"
"""The module that imports PyJWT."""
FILE_S: Final = 10.0
"""How often the file of the keys is looked at, as those of certificates are."""
MAX_FILE: Final = 256 * 1024


class Tokens:
    """Verifies tokens as a configuration says.

    Args:
        config: the configuration.
        source: where the keys come from.
        names: the names of the claims that limits count by.

    Attributes:
        config: as given.
        source: as given; it is started and closed like a store.
        verifier: reads the claims.
        read_token: returns the token of a request.
    """

    def __init__(self, config: JwtConfig, source: TokenSource, names: tuple[str, ...]) -> None:
        self.config = config
        self.source = source
        rules = TokenRules(
            frozenset(config.algorithms),
            config.issuer or "",
            frozenset(config.audience),
            config.leeway,
        )
        self.verifier = TokenVerifier(rules, source, names, wall_us)
        self.read_token: Read = compile_token(config.word)

    def shares_with(self, other: Tokens | None) -> bool:
        """Return whether the keys come from the same object."""
        return other is not None and other.source is self.source

    def explain(self, request: RequestView) -> str:
        """Return what becomes of the token of a request, as `Findings.token`."""
        token = self.read_token(request)
        if not token or not isinstance(token, str):
            return ""
        judged = self.verifier.judge(token)
        return f"not accepted: {judged.value}" if isinstance(judged, TokenRefusal) else "accepted"

    def reader(self, name: str) -> Read:
        """Return a function that reads a claim of requests."""
        return compile_claim(self.config.word, self.verifier.claims, name)


def tokens_of(config: GatewayConfig, predecessor: Tokens | None) -> Tokens | None:
    """Return what verifies tokens; None if no limit counts by them.

    Args:
        config: the configuration.
        predecessor: that of the configuration before, whose keys are used further if they come from
            the same place.

    Raises:
        StartError: PyJWT is not installed, or a secret cannot be used.
    """
    names = claims_of(config)
    if config.jwt is None or not names:
        return None
    require_library(config)
    if predecessor is not None and _place(predecessor.config) == _place(config.jwt):
        return Tokens(config.jwt, predecessor.source, names)
    return Tokens(config.jwt, _source_of(config.jwt), names)


def _place(config: JwtConfig) -> object:
    """Return what two configurations with the same keys have in common."""
    return config.keys, config.secret, config.algorithms, config.refresh


def require_library(config: GatewayConfig) -> None:
    """Raise `StartError` if tokens are to be verified, and PyJWT is not installed."""
    if config.jwt is None or not claims_of(config):
        return
    try:
        import_module(KEYS)
    except ImportError as error:
        library = (error.name or "").partition(".")[0]
        if library == "gateway":
            raise
        message = f"verifying tokens needs a library that is not installed: {library}"
        raise StartError("jwt", message, install_hint("jwt")) from error


def _source_of(config: JwtConfig) -> TokenSource:
    from gateway.tokens.keys import KeySet, TokenKeysError, parse_keys, secret_keys
    from gateway.tokens.source import FixedKeys, WatchedKeys, fetch

    if config.secret is not None:
        try:
            return FixedKeys(secret_keys(config.secret, config.algorithms))
        except TokenKeysError as error:
            raise StartError("jwt.secret", str(error)) from error
    file = config.file
    assert config.keys is not None
    return WatchedKeys(
        config.keys,
        partial(fetch, config.keys) if file is None else partial(in_thread, partial(_read, file)),
        partial(parse_keys, algorithms=config.algorithms),
        KeySet([]),
        interval_s=config.refresh / US if file is None else FILE_S,
        is_needed=file is not None,
    )


def inspect_keys(config: GatewayConfig) -> Iterator[Finding]:
    """Return why the keys of tokens cannot be used, as far as that can be said; blocks."""
    jwt = config.jwt
    try:
        require_library(config)
    except StartError:
        # It may be there where the gateway runs.
        return
    if jwt is None or not claims_of(config):
        return
    from gateway.tokens.keys import TokenKeysError, parse_keys, secret_keys

    try:
        if jwt.secret is not None:
            secret_keys(jwt.secret, jwt.algorithms)
        elif jwt.file is not None:
            parse_keys(_read(jwt.file), jwt.algorithms)
    except OSError as error:
        yield Finding(("jwt", "keys"), f"{jwt.file} cannot be read: {error.strerror or error}")
    except TokenKeysError as error:
        if jwt.secret is not None:
            yield Finding(("jwt", "secret"), str(error), "use a secret that only the issuer has")
        else:
            hint = "use public keys in PEM, or a JSON Web Key Set"
            yield Finding(("jwt", "keys"), f"{jwt.file}: {error}", hint)


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MAX_FILE)
