"""JSON Web Tokens: how they are verified, so that limits can count by their claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.header_names import HEADER_NAME
from gateway.config.values.places import check_path
from gateway.config.values.types import Delay, Duration, ListOf, describe, problem
from gateway.config.values.written import as_text
from gateway.limits.notation import UNITS

Algorithm = Literal[
    "HS256",
    "HS384",
    "HS512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]
MIN_SECRET: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
"""Bytes of a secret (RFC 7518, section 3.2)."""
MIN_REFRESH_US: Final = UNITS["s"]

_URL: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")


def _read_keys(value: object, info: ValidationInfo) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text:
        hint = "use the path of a file, or the URL of a JSON Web Key Set"
        raise problem(f"{describe(value)} is not valid here", hint)
    if "-----BEGIN" in text:
        message = "found the content of a file, its path or a URL was expected"
        raise problem(message, "for example /etc/sluice/jwt.pem")
    if _URL.match(text):
        return _checked_url(text)
    check_path(text)
    context: Any = info.context
    folder = context.get("folder") if isinstance(context, Mapping) else None
    return text if folder is None else str(folder / text)


def _checked_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in {"https", "http"} and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    else:
        if parts.username is not None:
            raise problem("this URL has credentials", "use one that needs none: keys are public")
    if not is_valid:
        hint = "for example https://issuer.example.com/.well-known/jwks.json"
        raise problem("this is not a URL of http or https", hint)
    return text


def _read_secret(value: object) -> str:
    value = as_text(value)
    if isinstance(value, str) and value:
        return value
    # The value is not shown: it is a secret.
    raise problem("this is not a valid secret", "use text in quotes, or ${file:/run/secrets/jwt}")


def _read_name(value: object) -> str:
    if isinstance(value, str) and HEADER_NAME.fullmatch(value):
        return value.lower()
    raise problem(f"{describe(value)} is not the name of a header", "for example Authorization")


def _read_cookie(value: object) -> str:
    if isinstance(value, str) and HEADER_NAME.fullmatch(value):
        return value
    raise problem(f"{describe(value)} is not the name of a cookie", "for example token")


class JwtConfig(Model):
    """How tokens are verified."""

    keys: Annotated[
        str | None,
        PlainValidator(_read_keys),
        WithJsonSchema(
            {
                "type": "string",
                "minLength": 1,
                "examples": [
                    "/etc/sluice/jwt.pem",
                    "https://issuer.example.com/.well-known/jwks.json",
                ],
            }
        ),
    ] = Field(
        None,
        description="The public keys: a file (PEM, or a JSON Web Key Set), or the URL of such a "
        "set. Either keys or secret.",
    )
    secret: Annotated[
        str | None,
        PlainValidator(_read_secret),
        WithJsonSchema({"type": "string", "minLength": 1}),
    ] = Field(None, description="The secret of HS256, HS384 or HS512.", repr=False)
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1), ListOf] = Field(
        description="The algorithms that tokens may be signed with; no others are accepted."
    )
    issuer: Annotated[str | None, Field(min_length=1)] = Field(
        None, description="The iss that tokens must have; default: any."
    )
    audience: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="The aud that tokens must have, or several of which one is enough."
    )
    leeway: Delay = Field(
        30 * UNITS["s"], description="By how much the clocks of issuer and gateway may differ."
    )
    header: Annotated[
        str, PlainValidator(_read_name), WithJsonSchema({"type": "string", "minLength": 1})
    ] = Field(
        "authorization",
        description="The header that has the token; in Authorization, after Bearer.",
    )
    cookie: Annotated[
        str | None, PlainValidator(_read_cookie), WithJsonSchema({"type": "string", "minLength": 1})
    ] = Field(None, description="The cookie that has the token, in place of a header.")
    refresh: Duration = Field(
        600 * UNITS["s"],
        description="How often a URL is fetched again; also, at most every 30 s, when a token has "
        "an unknown key.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> JwtConfig:
        secret = [name for name in self.algorithms if name.startswith("HS")]
        public = [name for name in self.algorithms if not name.startswith("HS")]
        if secret and public:
            message = f"{secret[0]} has a secret, and {public[0]} a public key"
            hint = "with both, a client could sign tokens with the public key: remove one"
            raise problem(message, hint, under=("algorithms",))
        if (self.keys is None) == (self.secret is None):
            message = "keys and secret cannot be combined" if self.keys else "the keys are missing"
            hint = "set secret" if secret else "set keys: a file, or the URL of a key set"
            hint = "remove one" if self.keys else hint
            raise problem(message, hint, under=("secret", KEY) if self.keys else (KEY,))
        if public and self.secret is not None:
            message = f"{public[0]} is verified with a public key, not with a secret"
            raise problem(message, "set keys in place of it", under=("secret", KEY))
        if secret and self.keys is not None:
            message = f"{secret[0]} is verified with a secret, not with public keys"
            raise problem(message, "set secret in place of keys", under=("keys", KEY))
        if self.secret is not None:
            least = max(MIN_SECRET[name] for name in secret)
            if len(self.secret.encode("utf-8", "surrogatepass")) < least:
                message = f"a secret for {secret[0]} has at least {least} characters"
                raise problem(message, "make one with: openssl rand -hex 32", under=("secret",))
        if self.cookie is not None and "header" in self.model_fields_set:
            raise problem(
                "header and cookie cannot be combined", "remove one", under=("cookie", KEY)
            )
        if "refresh" in self.model_fields_set and not self.is_url:
            raise problem("only a URL is fetched again", "remove it", under=("refresh", KEY))
        if self.refresh < MIN_REFRESH_US:
            raise problem(
                "keys are fetched at most once a second", "use 1s or more", under=("refresh",)
            )
        return self

    @property
    def is_url(self) -> bool:
        """Return whether the keys are fetched."""
        return self.keys is not None and _URL.match(self.keys) is not None

    @property
    def file(self) -> Path | None:
        """Return the file of the keys; None if they are elsewhere."""
        return None if self.keys is None or self.is_url else Path(self.keys)

    @property
    def word(self) -> str:
        """Return where tokens are, as a key word."""
        return f"header:{self.header}" if self.cookie is None else f"cookie:{self.cookie}"
