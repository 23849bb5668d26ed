"""Which pages of other sites may read the gateway's own responses (CORS, Fetch Standard)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from gateway.config.values.base import Model
from gateway.config.values.header_names import HEADER_NAME
from gateway.config.values.types import ListOf, Off, Switch, describe, problem

ANY: Final = "*"
_SCHEME: Final = r"[a-z][a-z0-9+.-]*"
_HOST: Final = r"(?:\*\.)?[a-z0-9-]+(?:\.[a-z0-9-]+)*|\[[0-9a-f:.]+\]"
_origin: Final = re.compile(rf"({_SCHEME})://({_HOST})(?::([0-9]{{1,5}}))?").fullmatch
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


def _read_origin(value: object) -> str:
    """Return an origin as browsers send it (RFC 6454, section 6.2), or `*`."""
    hint = "for example https://app.example.com, https://*.example.com, or * for any"
    if not isinstance(value, str):
        raise problem(f"{describe(value)} is not an origin", hint)
    text = value.strip().lower()
    if text == ANY:
        return ANY
    found = _origin(text)
    if found is not None:
        scheme, host, port = found.groups()
        return f"{scheme}://{host}" + (f":{port}" if port and _is_told(scheme, port) else "")
    if text == "null":
        hint = "any page can have this origin, in a sandbox; use * if all may read"
    elif "://" not in text and "." in text:
        hint = f"write its scheme, for example https://{text.partition('/')[0]}"
    elif "://" in text and "/" in text.partition("://")[2]:
        start, _, rest = text.partition("://")
        hint = f"an origin has no path: write {start}://{rest.partition('/')[0]}"
    raise problem(f"{value!r} is not an origin", hint)


def _is_told(scheme: str, port: str) -> bool:
    return _DEFAULT_PORTS.get(scheme) != port


def _read_exposed(value: object) -> str:
    if not isinstance(value, str) or not HEADER_NAME.fullmatch(value):
        raise problem(f"{describe(value)} is not the name of a header")
    if value == ANY:
        raise problem(
            "'*' is not the name of a header", "name the fields, for example X-Request-ID"
        )
    return value


Origin = Annotated[
    str,
    PlainValidator(_read_origin),
    WithJsonSchema({"type": "string", "examples": ["https://app.example.com", "*"]}),
]
ExposedName = Annotated[
    str, PlainValidator(_read_exposed), WithJsonSchema({"type": "string", "not": {"const": "*"}})
]


class CorsConfig(Model):
    """The origins whose pages may read the gateway's own responses."""

    origins: Annotated[tuple[Origin, ...], Field(min_length=1), ListOf] = Field(
        description="Origins such as https://app.example.com, https://*.example.com for all hosts "
        "below it, or * for any."
    )
    credentials: Switch = Field(
        False, description="Whether they may send cookies and read the response."
    )
    expose: Annotated[tuple[ExposedName, ...], ListOf] = Field(
        (), description="Fields that they may read besides those about limits."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_origins(cls, data: object) -> object:
        return data if isinstance(data, Mapping) or data is None else {"origins": data}

    @model_validator(mode="after")
    def _check(self) -> CorsConfig:
        if self.credentials and ANY in self.origins:
            message = "any page could read what is meant for a user who is logged in"
            hint = "name the origins, or set credentials: false"
            raise problem(message, hint, under=("credentials",))
        return self


Cors = Annotated[CorsConfig | None, Off]
