"""Configuration of retries."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from gateway.config.models.consistency import Part
from gateway.config.values.base import Model
from gateway.config.values.types import (
    METHOD_SCHEMA,
    Duration,
    ListOf,
    Method,
    Off,
    Size,
    WholeNumber,
    describe,
    problem,
    read_method,
    whole_number_schema,
)

MAX_TRIES: Final = 10
MAX_RETRIES: Final = 1_000_000
FAILURES: Final = ("connect", "reset", "timeout")
"""Failures before a response: no connection, a lost connection, a timeout."""
GRPC_STATUSES: Final = {
    "cancelled": 1,
    "deadline_exceeded": 4,
    "resource_exhausted": 8,
    "aborted": 10,
    "internal": 13,
    "unavailable": 14,
}
"""Statuses of gRPC that are failures of a moment, by their names."""
FIRST_STATUS: Final = 400
LAST_STATUS: Final = 599

Tries = Annotated[WholeNumber, Field(ge=1, le=MAX_TRIES), whole_number_schema(1, MAX_TRIES)]


def _read_condition(value: object) -> str | int:
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if FIRST_STATUS <= value <= LAST_STATUS:
            return value
        message = f"{value} is not the status of a failure"
        raise problem(message, f"use {FIRST_STATUS} to {LAST_STATUS}, for example 503")
    words = (*FAILURES, *GRPC_STATUSES)
    known = f"use {', '.join(FAILURES)}, a status such as 503, or one of gRPC such as unavailable"
    if isinstance(value, str) and value.lower().replace("-", "_") in words:
        return value.lower().replace("-", "_")
    near = get_close_matches(value.lower(), words, 1, 0.5) if isinstance(value, str) else []
    hint = f"did you mean {near[0]}? Known: {known}" if near else known
    raise problem(f"{describe(value)} is not valid here", hint)


Condition = Annotated[
    str | int,
    PlainValidator(_read_condition),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [*FAILURES, *GRPC_STATUSES]},
                {"type": "integer", "minimum": FIRST_STATUS, "maximum": LAST_STATUS},
                {"type": "string", "pattern": "^[45][0-9][0-9]$"},
            ]
        }
    ),
]


def _read_methods(value: object) -> str | tuple[str, ...]:
    if isinstance(value, str) and value in {"idempotent", "any"}:
        return value
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, list | tuple) or not value:
        raise problem(
            f"{describe(value)} is not valid here",
            "use idempotent, any, or a list such as [GET, POST]",
        )
    return tuple(read_method(one) for one in value)


Methods = Annotated[
    str | tuple[Method, ...],
    PlainValidator(_read_methods),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["idempotent", "any"]},
                METHOD_SCHEMA,
                {"type": "array", "items": METHOD_SCHEMA, "minItems": 1},
            ]
        }
    ),
]


class RetryConfig(Model):
    """When a failed request is sent again."""

    tries: Tries = Field(
        2, description="How often a request is sent at most, including the first time."
    )
    when: Annotated[tuple[Condition, ...], Field(min_length=1), ListOf] = Field(
        ("connect", "reset"),
        description="Failures that are retried: connect, reset, timeout, statuses such as 503, and "
        "those of gRPC, such as unavailable.",
    )
    methods: Methods = Field(
        "idempotent",
        description="Requests that are retried: idempotent, any, or methods. If no connection was "
        "made, nothing was sent, and any request is retried.",
    )
    timeout: Annotated[Duration | None, Off] = Field(
        None,
        description="Time to the first byte of a response, for each try that may be followed by "
        "another; off for the time in timeouts.",
    )
    backoff: Duration = Field(
        25_000,
        description="The pause before a second try at the same target is a random part of this; it "
        "doubles with each try.",
    )
    max_backoff: Duration = Field(250_000, description="The longest such pause.")
    budget: Part = Field(
        "20%", description="The share of requests within ten seconds that may be retries."
    )
    min_retries: Annotated[
        WholeNumber, Field(ge=0, le=MAX_RETRIES), whole_number_schema(0, MAX_RETRIES)
    ] = Field(10, description="Retries within ten seconds that are always allowed.")
    max_body: Size = Field(
        65_536, description="Requests with larger bodies are not retried once a part was sent."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_tries(cls, data: object) -> Any:
        if isinstance(data, bool):
            raise problem(
                f"{describe(data)} is not valid here", "use off, or the number of tries: 2"
            )
        return {"tries": data} if isinstance(data, str | int) else data

    @model_validator(mode="after")
    def _check_together(self) -> RetryConfig:
        if self.timeout is not None and "timeout" not in self.when:
            message = "without timeout in when, a try that takes too long is not retried"
            raise problem(message, "add when: [connect, reset, timeout]", under=("timeout",))
        if self.max_backoff < self.backoff and "max_backoff" in self.model_fields_set:
            message = "the longest pause cannot be shorter than the first"
            raise problem(message, "use at least the value of backoff", under=("max_backoff",))
        return self
