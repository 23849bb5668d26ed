"""Conditions of policies: the requests that they count, and those that they do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, create_model, model_validator

from gateway.config.models.lists import LIST_NAME, PREFLIGHT, Member, Members
from gateway.config.values.address import AddressError, parse_network
from gateway.config.values.base import Model
from gateway.config.values.header_names import HEADER_NAME
from gateway.config.values.paths import PathError, split_pattern
from gateway.config.values.places import ConditionName, FieldText
from gateway.config.values.types import (
    HostPattern,
    ListOf,
    Method,
    PathPattern,
    Switch,
    describe,
    problem,
)
from gateway.routing.methods import METHODS
from gateway.routing.pattern import Pattern
from gateway.routing.sender import ANYONE, Sender

MAX_EXCEPTIONS: Final = 256
_is_network: Final = re.compile(
    r"[0-9.]+/[0-9]+|[0-9]+(\.[0-9]+){3}|[0-9A-Fa-f]*:[0-9A-Fa-f:./]*"
).fullmatch
_EXAMPLE: Final = "for example office, 10.0.0.0/8, preflight, OPTIONS, /health or GET /static/**"

CertificateDetail = Literal["subject", "san", "fingerprint"]
CertificateDetails = dict[CertificateDetail, FieldText]


def _check_cookies(cookies: dict[str, str]) -> dict[str, str]:
    for name in cookies:
        if not HEADER_NAME.fullmatch(name):
            raise problem(f"{name!r} is not the name of a cookie", under=(name,))
    return cookies


Cookies = Annotated[dict[str, FieldText], AfterValidator(_check_cookies)]


def make_sender(
    clients: tuple[Member, ...],
    cookies: Mapping[str, str],
    certificate: Mapping[CertificateDetail, str],
) -> Sender:
    """Return what the options `client`, `cookies` and `client_cert` require."""
    return Sender(clients, tuple(cookies.items()), tuple(certificate.items()))


class ConditionConfig(Model):
    """Conditions on a request, all of which must hold."""

    client: Members = Field(
        (), description="Networks and names of lists; one of them must have the client."
    )
    methods: Annotated[tuple[Method, ...], ListOf] = Field((), description="Default: any method.")
    host: HostPattern | None = Field(None, description="As in a route.")
    path: PathPattern | None = Field(None, description="As in a route.")
    headers: dict[ConditionName, FieldText] = Field({}, description="As in a route.")
    cookies: Cookies = Field(
        {}, description="Cookies that a request must have, with their values; * for any text."
    )
    client_cert: CertificateDetails = Field(
        {},
        description="What the client's certificate must say: subject, san or fingerprint, with * "
        "for any text.",
    )
    preflight: Switch = Field(
        False, description="Whether it must be a preflight request of a browser (CORS)."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        if isinstance(data, str):
            return _read_text(data.strip())
        if isinstance(data, Mapping | cls):
            return data
        raise problem(f"found {describe(data)}, a condition was expected", _EXAMPLE)

    @model_validator(mode="after")
    def _check_conditions(self) -> ConditionConfig:
        if self.is_pattern and self.pattern is None:
            raise problem("a condition is empty, and would hold for all requests", _EXAMPLE)
        return self

    @property
    def is_pattern(self) -> bool:
        """Return whether it is about host, path, methods and header fields alone."""
        return not self.preflight and self.sender == ANYONE

    @property
    def pattern(self) -> Pattern | None:
        """Return the conditions on host, path, methods and fields; None if there are none."""
        if not (self.methods or self.headers or self.host or self.path):
            return None
        headers = tuple(self.headers.items())
        return Pattern(self.host, self.path or "/**", self.methods, headers)

    @property
    def sender(self) -> Sender:
        """Return what is required of the client."""
        return make_sender(self.client, self.cookies, self.client_cert)


def _read_text(text: str) -> dict[str, Any]:
    """Read the short form of a condition. Raises `problem`."""
    if text == PREFLIGHT:
        return {"preflight": True}
    words = [word.strip() for word in text.split(",")]
    if set(words) <= set(METHODS):
        return {"methods": words}
    try:
        parse_network(text)
    except AddressError as error:
        if _is_network(text):
            raise problem(error.message, error.hint) from None
    else:
        return {"client": [text]}
    if LIST_NAME.fullmatch(text):
        return {"client": [text]}
    if "/" not in text or text[:1].isdigit():
        raise problem(f"{text!r} is not a condition", _EXAMPLE)
    try:
        parts = split_pattern(text)
    except PathError as error:
        raise problem(error.message, error.hint) from None
    said: dict[str, Any] = {"path": parts.path}
    if parts.host is not None:
        said["host"] = parts.host
    if parts.methods:
        said["methods"] = list(parts.methods)
    return said


class _Excepting(Model):
    only: Annotated[tuple[ConditionConfig, ...], Field(max_length=MAX_EXCEPTIONS), ListOf] = Field(
        (),
        description="The only requests that the policy counts, as conditions like those of except.",
    )

    @property
    def exceptions(self) -> tuple[ConditionConfig, ...]:
        """Return the requests that it does not count: those of `except`."""
        found: tuple[ConditionConfig, ...] = getattr(self, "except")
        return found

    @property
    def conditions(self) -> tuple[ConditionConfig, ...]:
        """Return all conditions that decide which requests it counts."""
        return (*self.exceptions, *self.only)


if TYPE_CHECKING:
    Excepting = _Excepting
else:
    # The key is a word that Python reserves.
    Excepting = create_model(
        "Excepting",
        __base__=_Excepting,
        **{
            "except": (
                Annotated[tuple[ConditionConfig, ...], Field(max_length=MAX_EXCEPTIONS), ListOf],
                Field(
                    (),
                    description="Requests that the policy does not count, one condition or a "
                    "list: a network, the name of a list, preflight, a method, a pattern such as "
                    "GET /static/**, or a mapping of conditions.",
                ),
            )
        },
    )
