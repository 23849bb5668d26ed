"""Configuration of load balancing, health checks, ejection and circuit breakers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator, model_validator

from gateway.base.errors import LimitSyntaxError
from gateway.config.models.consistency import Part
from gateway.config.values.address import AddressError, parse_authority
from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.places import FieldText
from gateway.config.values.types import (
    Duration,
    ListOf,
    WholeNumber,
    describe,
    problem,
    whole_number_schema,
)
from gateway.limits.cursor import Cursor
from gateway.limits.key_words import CALLER_KEYS, read_keys

METHODS: Final = ("round_robin", "least_requests", "random_two")
MAX_ROW: Final = 1_000
MAX_REQUESTS: Final = 1_000_000
MIN_EVERY_US: Final = 10_000
"""More checks would be a considerable load, for gateway and targets alike."""

_PATH: Final = re.compile(r"/[\x21\x22\x24-\x7e]*")
"""Without a #: the part after it is never sent."""
_TCHAR: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")
_JOINED: Final = "join keys with +, for example ip+header:x-user"
_FRAMING: Final = ("connection", "content-length", "transfer-encoding")

Count = Annotated[WholeNumber, Field(ge=1, le=MAX_ROW), whole_number_schema(1, MAX_ROW)]

_CLASS: Final = re.compile(r"[1-5]xx")


def _read_status(value: object) -> int | str:
    if isinstance(value, str) and _CLASS.fullmatch(value):
        return value
    number = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{3}", value) else value
    if isinstance(number, int) and not isinstance(number, bool) and 100 <= number <= 599:
        return number
    raise problem(
        f"{describe(value)} is not valid here", "use a status such as 503, or 5xx for all of a kind"
    )


Status = Annotated[
    int | str,
    PlainValidator(_read_status),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 100, "maximum": 599},
                {"type": "string", "pattern": "^[1-5]([0-9][0-9]|xx)$"},
            ]
        }
    ),
]
"""A status from 100 to 599, or `5xx` for all that begin with 5."""

Statuses = Annotated[tuple[Status, ...], ListOf]


def numbers(statuses: Iterable[int | str]) -> frozenset[int]:
    """Return all statuses that are meant."""
    meant: set[int] = set()
    for status in statuses:
        if isinstance(status, str):
            first = int(status[0]) * 100
            meant.update(range(first, first + 100))
        else:
            meant.add(status)
    return frozenset(meant)


@dataclass(frozen=True, slots=True)
class HashBy:
    """Requests with the same key go to the same target.

    Attributes:
        text: the key as it was written.
        words: `path`, or canonical key words of a limit.
    """

    text: str
    words: tuple[str, ...]


_NOT_HASHED: Final = {
    "path": ("is a parameter of routes, and an upstream has none", "use path, the whole path"),
    **dict.fromkeys(
        ("json", "form"), ("is in a body, and targets are chosen before it has arrived", "use ip")
    ),
    "jwt": ("is a claim, and only limits count by claims", "for example header:authorization"),
    **dict.fromkeys(("country", "asn"), ("is for limits and lists", "use ip")),
}
"""Key words of limits that are not for upstreams: why, and what to use."""


def _read_hash(value: object) -> HashBy:
    if not isinstance(value, str):
        hint = "for example hash: header:x-user"
        raise problem(f"found {describe(value)}, a key was expected", hint, under=("hash",))
    text = value.strip()
    if text == "path":
        return HashBy(text, (text,))
    line = Cursor(text)
    try:
        words = read_keys(line)
        if line.position != len(text):
            raise line.error(line.position, f"{text[line.position :]!r} is not expected", _JOINED)
    except LimitSyntaxError as error:
        hint = error.hint
        if hint.startswith("use one of "):
            hint = "use path, ip, host, method, header:NAME, cookie:NAME, query:NAME or client_cert"
        raise problem(error.reason, hint, column=error.column, under=("hash",)) from None
    for word in CALLER_KEYS:
        if word in words:
            raise problem(
                f"HTTP requests have no {word}", "for example header:x-user", under=("hash",)
            )
    for word in words:
        reason, hint = _NOT_HASHED.get(word.partition(":")[0], ("", ""))
        if reason:
            raise problem(f"{word!r} {reason}", hint, under=("hash",))
    for word in ("all", "route"):
        if word in words:
            message = f"{word!r} would send all requests to one target"
            raise problem(message, "for example ip or header:x-user", under=("hash",))
    return HashBy(text, words)


def _read_balance(value: object) -> str | HashBy:
    if isinstance(value, HashBy):
        return value
    if isinstance(value, str):
        if value in METHODS:
            return value
        near = get_close_matches(value.lower(), METHODS, 1, 0.5)
        known = f"{', '.join(METHODS)} or {{hash: KEY}}"
        hint = f"did you mean {near[0]}? Known: {known}" if near else known
        if value == "hash":
            hint = "name the key: balance: {hash: header:x-user}"
        raise problem(f"{describe(value)} is not valid here", hint)
    if not isinstance(value, Mapping) or not value:
        hint = f"{', '.join(METHODS)} or {{hash: KEY}}"
        raise problem(f"{describe(value)} is not valid here", hint)
    for key in value:
        if key != "hash":
            raise problem(f"unknown key {str(key)!r}", "known keys: hash", under=(str(key), KEY))
    return _read_hash(value["hash"])


_KEY_PATTERN: Final = (r"^\s*(path|{key}(\s*\+\s*{key})*)\s*$").replace(
    "{key}", r"(ip|host|method|client_cert(:\w+)?|(header|cookie|query):[^\s/+]+)"
)

Balance = Annotated[
    str | HashBy,
    PlainValidator(_read_balance),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(METHODS)},
                {
                    "type": "object",
                    "properties": {
                        "hash": {
                            "type": "string",
                            "pattern": _KEY_PATTERN,
                            "examples": ["header:x-user", "cookie:session", "ip"],
                        }
                    },
                    "required": ["hash"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class HealthConfig(Model):
    """Health checks of targets."""

    path: str | None = Field(
        None,
        description="The path of a GET request; with tcp, a successful connection is enough.",
        json_schema_extra={"anyOf": [{"type": "string", "pattern": r"^/[\x21-\x7e]*$"}]},
    )
    grpc: str | None = Field(
        None,
        description="In place of a path: the service that is asked for by grpc.health.v1, which "
        "needs http2; grpc alone for the whole server.",
        json_schema_extra={"anyOf": [{"type": "string", "pattern": r"^[\x21-\x7e]*$"}]},
    )
    every: Duration = Field(
        5_000_000, description="The time between two checks of a target, plus or minus a tenth."
    )
    timeout: Duration = Field(2_000_000, description="The time that a check may take.")
    healthy_after: Count = Field(
        2, description="Successful checks in a row before a target is used again."
    )
    unhealthy_after: Count = Field(
        3, description="Failed checks in a row before a target is excluded."
    )
    status: Statuses = Field((), description="The expected status; default: any of 200 to 399.")
    host: str | None = Field(
        None,
        description="The Host of a check; default: that of the target.",
        json_schema_extra={"anyOf": [{"type": "string", "pattern": r"^[^\s/]+$"}]},
    )
    headers: dict[str, FieldText] = Field({}, description="Header fields of a check.")

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, data: object) -> object:
        if not isinstance(data, str):
            return data
        if data == "tcp":
            return {}
        if data == "grpc":
            return {"grpc": ""}
        if data.startswith("/"):
            return {"path": data}
        raise problem(
            f"{describe(data)} is not valid here", "use a path such as /healthz, tcp, grpc, or off"
        )

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str | None) -> str | None:
        if path is not None and not _PATH.fullmatch(path):
            raise problem(f"{describe(path)} is not a path", "for example /healthz, without spaces")
        return path

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str | None) -> str | None:
        if host is None:
            return None
        try:
            return parse_authority(host)
        except AddressError as error:
            hint = error.hint or "for example app.internal"
            raise problem(f"{describe(host)} is not a host", hint) from None

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not _TCHAR.fullmatch(name):
                raise problem(f"{name!r} is not the name of a header", under=(name, KEY))
            if name.lower() == "host":
                hint = "use the key host: ..."
                raise problem("the host has a key of its own", hint, under=(name, KEY))
            if name.lower() in _FRAMING:
                raise problem(f"{name} is set by the gateway", "remove it", under=(name, KEY))
            if not _VALUE.fullmatch(value):
                # The value may be a secret.
                message = f"this value of {name} cannot be sent"
                raise problem(message, "use printable ASCII", under=(name,))
        return headers

    @model_validator(mode="after")
    def _check_together(self) -> HealthConfig:
        if self.every < MIN_EVERY_US:
            raise problem("checks must be at least 10ms apart", "for example 1s", under=("every",))
        if self.grpc is not None:
            for name in ("path", "status"):
                if name in self.model_fields_set:
                    message = f"{name} has no meaning for a check by gRPC"
                    raise problem(message, "remove it, or remove grpc", under=(name, KEY))
            if not re.fullmatch(r"[\x21-\x7e]*", self.grpc):
                message = f"{describe(self.grpc)} is not the name of a service"
                raise problem(message, "for example pkg.Service", under=("grpc",))
        for name in ("status", "host", "headers"):
            if self.path is None and self.grpc is None and name in self.model_fields_set:
                message = f"{name} requires a path: without one, no request is sent"
                raise problem(message, "for example path: /healthz", under=(name, KEY))
        return self


class EjectConfig(Model):
    """When failed requests exclude a target."""

    failures: Count = Field(5, description="Failures in a row that eject a target.")
    duration: Duration = Field(
        10_000_000, description="The first time of an ejection; it doubles each time."
    )
    max_duration: Duration = Field(300_000_000, description="The longest time of an ejection.")
    max_share: Part = Field(
        "75%",
        description="The share of targets that may be ejected together; always one, and never all.",
    )
    statuses: Statuses = Field(
        (502, 503, 504),
        description="Responses that are failures, besides failed connections and timeouts.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> EjectConfig:
        if self.max_duration < self.duration:
            if "max_duration" not in self.model_fields_set:
                message = "the first ejection is longer than max_duration, which is 5m"
                raise problem(message, "raise max_duration as well", under=("duration",))
            message = "the longest ejection cannot be shorter than the first"
            raise problem(message, "use at least the value of duration", under=("max_duration",))
        return self


class BreakerConfig(Model):
    """When an upstream is not used for a while."""

    failures: Part = Field("50%", description="The share of requests that must fail.")
    min_requests: Annotated[
        WholeNumber, Field(ge=1, le=MAX_REQUESTS), whole_number_schema(1, MAX_REQUESTS)
    ] = Field(20, description="Requests in the window below which the share is ignored.")
    window: Duration = Field(10_000_000, description="The length of the window.")
    open: Duration = Field(
        10_000_000, description="How long requests are answered with 503 immediately."
    )
    trials: Count = Field(
        3, description="Requests that are then tried; all must succeed, or it opens again."
    )
    statuses: Statuses = Field(
        (502, 503, 504),
        description="Responses that are failures, besides failed connections and timeouts.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_share(cls, data: object) -> Any:
        return {"failures": data} if isinstance(data, str) else data
