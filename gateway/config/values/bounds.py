"""Types of counts and minimum rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import PlainValidator, ValidationInfo, WithJsonSchema

from gateway.config.values.types import (
    describe,
    is_from_file,
    problem,
    read_duration,
    read_whole_number,
    whole_numbers,
)
from gateway.config.values.units import DURATION_PATTERN, SPEED_PATTERN, UnitError, parse_speed

MAX_SHARE: Final = 10_000
MAX_WORKERS: Final = 256
MAX_CONNECTIONS: Final = 1_000_000
MAX_PENDING: Final = 1_000_000_000
WATCH_US: Final = 1_000_000
"""How often files are looked at by default."""
LEAST_WATCH_US: Final = 100_000


def _auto_or_number(most: int, least: int = 1) -> Callable[[object], Literal["auto"] | int]:
    def read(value: object) -> Literal["auto"] | int:
        if value == "auto":
            return "auto"
        value = read_whole_number(value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise problem(
            f"{describe(value)} is not valid here",
            f"use auto, or a whole number from {least} to {most}",
        )

    return read


def _auto_or_number_schema(most: int, least: int = 1) -> dict[str, Any]:
    """Return the schema of values that `_auto_or_number` reads."""
    return {"anyOf": [{"const": "auto"}, *whole_numbers(least, most)]}


def _read_speed(value: object, info: ValidationInfo) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if is_from_file(info):
            raise problem(f"{value} has no unit of time", f"for example {value}B/s")
        speed = value
    elif isinstance(value, str):
        try:
            speed = parse_speed(value)
        except UnitError as error:
            raise problem(error.message, error.hint) from None
    else:
        message = f"found {describe(value)}, bytes in a second were expected"
        raise problem(message, "for example 50B/s; off for none")
    if speed <= 0:
        raise problem("a rate of zero or less", "use 1B/s or more; off for none")
    return speed


def _read_watch(value: object, info: ValidationInfo) -> int | None:
    if value is None or value is False or value == "off":
        return None
    if value is True or value == "on":
        return WATCH_US
    interval = read_duration(value, info)
    if interval < LEAST_WATCH_US:
        raise problem("an interval of less than 100ms", "use 100ms or more, or on")
    return interval


Speed = Annotated[
    int,
    PlainValidator(_read_speed),
    WithJsonSchema({"type": "string", "pattern": SPEED_PATTERN, "examples": ["50B/s", "1KiB/s"]}),
]
"""Whole bytes per second, more than 0; written `50B/s`, `1KiB/s`."""

Share = Annotated[
    Literal["auto"] | int,
    PlainValidator(_auto_or_number(MAX_SHARE)),
    WithJsonSchema(_auto_or_number_schema(MAX_SHARE)),
]

Workers = Annotated[
    Literal["auto"] | int,
    PlainValidator(_auto_or_number(MAX_WORKERS)),
    WithJsonSchema(_auto_or_number_schema(MAX_WORKERS)),
]

Connections = Annotated[
    Literal["auto"] | int,
    PlainValidator(_auto_or_number(MAX_CONNECTIONS)),
    WithJsonSchema(_auto_or_number_schema(MAX_CONNECTIONS)),
]
"""A number of connections, or `auto` for as many as the system allows a process."""

Pending = Annotated[
    Literal["auto"] | int,
    PlainValidator(_auto_or_number(MAX_PENDING, 0)),
    WithJsonSchema(_auto_or_number_schema(MAX_PENDING, 0)),
]
"""A number of requests, or `auto` for as many as there may be clients."""

Watch = Annotated[
    int | None,
    PlainValidator(_read_watch),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["off", "on", False, True]},
                {"type": "string", "pattern": DURATION_PATTERN, "examples": ["1s", "5s"]},
            ]
        }
    ),
]
"""How often to look at files, in microseconds; None for never. Written `on`, `off`, `5s`."""
