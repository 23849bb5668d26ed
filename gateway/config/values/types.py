"""Types of single values: how each is parsed, and its schema for editors.

Every parser reports what it found and how to fix it. Models are composed of these types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Any, Final, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    Strict,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, core_schema

from gateway.base.errors import LimitSyntaxError
from gateway.config.values.address import (
    AddressError,
    parse_host_pattern,
)
from gateway.config.values.paths import PathError, parse_path
from gateway.config.values.redaction import redact
from gateway.config.values.units import (
    DELAY_PATTERN,
    DURATION_PATTERN,
    SIZE_PATTERN,
    UnitError,
    parse_duration,
    parse_size,
)
from gateway.limits.notation import parse_limit
from gateway.limits.rate import Limit
from gateway.routing.methods import METHOD_PATTERN, METHODS, NEVER_FORWARDED, is_method

FROM_FILE: Final = {"from_file": True}
"""The validation context of values that a person wrote: a bare number is then not a duration."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One limit of a policy.

    Attributes:
        text: the line as written.
        limit: its meaning, with the algorithm and the longest wait of its policy.
        per: canonical key words, in order; never empty.
    """

    text: str
    limit: Limit
    per: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> LimitLine:
        """Read a line. Raises `LimitSyntaxError`."""
        limit, per = parse_limit(text)
        return cls(text.strip(), limit, per)

    def bind(
        self,
        algorithm: str,
        max_wait_us: int,
        lease_us: int,
        *,
        count_refused: bool,
        max_debt: int | None = 0,
    ) -> LimitLine:
        """Return the line with the options of its policy applied.

        A line that implies its algorithm keeps it, as all lines do if the policy names none (the
        empty text). Limits on requests in flight have no queue by time. `max_debt` is how much may
        be owed, None for as much as the burst.
        """
        limit = self.limit
        if limit.algorithm == "concurrency":
            return replace(self, limit=replace(limit, period_us=lease_us))
        limit = replace(
            limit,
            algorithm=limit.algorithm if limit.calendar or not algorithm else algorithm,
            max_wait_us=max_wait_us,
            count_refused=count_refused,
            # Debt must be bounded.
            debt=limit.burst if max_debt is None else max_debt,
        )
        return replace(self, limit=limit)


def problem(
    message: str, hint: str = "", *, column: int = 0, under: tuple[str | int, ...] = ()
) -> PydanticCustomError:
    """Return a validation error with a message of our own.

    Args:
        message: what was found and why it is wrong.
        hint: how to fix it.
        column: the position in the text of the value, counted from 1; 0 for its beginning.
        under: the path from the value being read to the one at fault.
    """
    context = {"message": message, "hint": hint, "column": column, "under": under}
    return PydanticCustomError("sluice", "{message}", context)


def problems(found: Sequence[PydanticCustomError]) -> PydanticCustomError:
    """Combine several errors of one value, each from `problem`, into one to raise."""
    also = [error.context for error in found[1:]]
    return PydanticCustomError("sluice", "{message}", {**(found[0].context or {}), "also": also})


def is_from_file(info: ValidationInfo) -> bool:
    """Return whether the value was written by a person, not built in Python."""
    context: Any = info.context
    return isinstance(context, Mapping) and bool(context.get("from_file"))


def describe(value: object) -> str:
    """Return what was found, in words: `the number 5`, `a list`, `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        value = redact(value) if "://" in value else value
        shown = value if len(value) <= 60 else value[:57] + "..."
        return repr(shown)
    if isinstance(value, Mapping):
        return "a mapping"
    return (
        "a list" if isinstance(value, list | tuple) else f"a value of type {type(value).__name__}"
    )


def _text(value: object, expected: str) -> str:
    if isinstance(value, str):
        return value
    raise problem(f"found {describe(value)}, {expected} was expected")


def _read_delay(value: object, info: ValidationInfo) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, int) and is_number and not is_from_file(info):
        duration = value
    elif is_number:
        raise problem(f"{value} has no unit of time", f"for example {value}s or {value}ms")
    else:
        try:
            duration = parse_duration(_text(value, "a duration such as 500ms or 2s"))
        except UnitError as error:
            raise problem(error.message, error.hint) from None
    if duration < 0:
        raise problem("a duration below zero", "use 0s or more, for example 500ms")
    return duration


def read_duration(value: object, info: ValidationInfo) -> int:
    """Read whole microseconds, more than 0, from `500ms` or `2s`. Raises `problem`."""
    duration = _read_delay(value, info)
    if duration == 0:
        raise problem("a duration of zero", "use more than 0, for example 500ms")
    return duration


def read_size(value: object) -> int:
    """Read whole bytes from `512`, `16KiB` or a number. Raises `problem`."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        try:
            size = parse_size(_text(value, "a size such as 512 or 16KiB"))
        except UnitError as error:
            raise problem(error.message, error.hint) from None
    if size <= 0:
        raise problem("a size of zero or less", "use at least 1 byte, for example 16KiB")
    return size


_SWITCH_WORDS: Final = {
    **dict.fromkeys(("yes", "y", "on", "true", "1", "enabled", "enable"), "true"),
    **dict.fromkeys(("no", "n", "off", "false", "0", "disabled", "disable"), "false"),
}
"""Words that are switches in YAML 1.1 and elsewhere."""


def _read_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in {"on", "off"}:
        return value == "on"
    meant = _SWITCH_WORDS.get(str(value).lower())
    raise problem(
        f"{describe(value)} is not valid here", f"write {meant}" if meant else "use true or false"
    )


def _reader(
    parse: Callable[[str], T], result: type | tuple[type, ...], expected: str
) -> Callable[[object], T]:
    """Return a validator that parses text with `parse` and accepts values of type `result`."""

    def read(value: object) -> T:
        if isinstance(value, result):
            return value  # type: ignore[return-value]  # T is one of the types in `result`
        try:
            return parse(_text(value, expected))
        except (AddressError, PathError) as error:
            raise problem(error.message, error.hint) from None

    return read


def _read_text_by(parse: Callable[[str], str], expected: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        try:
            return parse(_text(value, expected))
        except (AddressError, PathError) as error:
            raise problem(error.message, error.hint) from None

    return read


def read_whole_number(value: object) -> object:
    """Convert text that is a whole number; leave everything else."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,12}", value):
        return int(value)
    return value


def whole_number_schema(least: int, most: int) -> WithJsonSchema:
    """Return the schema of a `WholeNumber` between two others."""
    return WithJsonSchema({"anyOf": whole_numbers(least, most)})


def whole_numbers(least: int, most: int) -> list[dict[str, Any]]:
    """Return the ways in which one may be written."""
    number = {"type": "integer", "minimum": least, "maximum": most}
    return [number, {"type": "string", "pattern": "^[0-9]{1,12}$"}]


def _read_limit_line(value: object) -> LimitLine:
    if isinstance(value, LimitLine):
        return value
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            raise problem(
                f"{value} has no unit of time", f"for example {value}/s, {value}/m or {value}/d"
            )
        if isinstance(value, Mapping):
            hint = "a limit is one line, for example 10/s burst 20 per header:X-API-Key"
            raise problem(f"found {describe(value)}, a limit was expected", hint)
        return LimitLine.parse(_text(value, "a limit such as 10/s burst 20"))
    except LimitSyntaxError as error:
        raise problem(error.reason, error.hint, column=error.column) from None


LIMIT_PATTERN: Final = (
    r"^\s*0*[1-9][0-9]{0,9}\s*(at\s+once|/\s*((d|days?|weeks?|months?)\s+in\s+\S+|"
    r"(0*[1-9][0-9]{0,10}\s*)?"
    r"(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)"
    r"(\s+burst\s+0*[1-9][0-9]{0,9})?))"
    r"(\s+per\s+(all|{key}(\s*\+\s*{key})*))?\s*$"
).replace(
    "{key}",
    r"(ip|route|host|method|country|asn|owner|resource|client_cert(:(subject|san|fingerprint))?|(header|cookie|query|path|jwt|json|form):[^\s/+]+)",
)

ADDRESS_EXAMPLES: Final = ["127.0.0.1:8080", "[::1]:8080", ":8080"]
ADDRESS_SCHEMA: Final = {
    "type": "string",
    "pattern": r"^\s*(\*|[^\s:/\[\]]*|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}\s*$",
    "examples": ADDRESS_EXAMPLES,
}

Duration = Annotated[
    int,
    PlainValidator(read_duration),
    WithJsonSchema(
        {"type": "string", "pattern": DURATION_PATTERN, "examples": ["500ms", "2s", "1m"]}
    ),
]
"""Whole microseconds, more than 0; written `50ms`, `2s`, `1m`, `1.5h`, `1d`."""

Delay = Annotated[
    int,
    PlainValidator(_read_delay),
    WithJsonSchema({"type": "string", "pattern": DELAY_PATTERN, "examples": ["0s", "5s"]}),
]
"""Like `Duration`, and may be 0."""

Size = Annotated[
    int,
    PlainValidator(read_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": SIZE_PATTERN},
            ],
            "examples": ["16KiB", "1MiB", "10MB"],
        }
    ),
]
"""Whole bytes, more than 0; written `512`, `16KiB`, `1MiB`, `10MB`."""

Switch = Annotated[
    bool,
    PlainValidator(_read_switch),
    WithJsonSchema({"enum": [True, False, "on", "off"]}),
]
"""true or false; `on` and `off` are accepted."""

WholeNumber = Annotated[int, BeforeValidator(read_whole_number), Strict()]
"""A whole number, also as text: inside braces YAML needs quotes around `${VAR}`."""

Positive = Annotated[
    WholeNumber, Field(ge=1, le=1_000_000_000), whole_number_schema(1, 1_000_000_000)
]

Line = Annotated[
    LimitLine,
    PlainValidator(_read_limit_line),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": LIMIT_PATTERN,
            "examples": [
                "10/s",
                "10/s burst 20 per header:X-API-Key",
                "1000/day per ip+route",
                "10000/month in Europe/Berlin",
                "50 at once",
            ],
        }
    ),
]

HostPattern = Annotated[
    str,
    PlainValidator(_read_text_by(parse_host_pattern, "a host such as api.example.com")),
    WithJsonSchema({"type": "string", "pattern": r"^\s*(\*\.)?[^\s*/]+\s*$"}),
]

PathPattern = Annotated[
    str,
    PlainValidator(_read_text_by(parse_path, "a path such as /v1/pay")),
    WithJsonSchema(
        {"type": "string", "pattern": r"^\s*/", "examples": ["/v1/pay", "/v1/**", "/users/{id}"]}
    ),
]


def read_method(value: object) -> str:
    """The name of a method that routes may have."""
    text = _text(value, "a method such as GET").strip()
    if text in METHODS:
        return text
    if text == "*":
        raise problem("'*' means all methods", "remove the methods")
    upper = text.upper()
    if upper in NEVER_FORWARDED:
        message = f"{upper} never reaches a route: the gateway answers it with 405"
        raise problem(message, "remove it")
    if upper in METHODS:
        raise problem(f"methods are written in capitals, not {text!r}", f"write {upper}")
    if upper in {"ANY", "ALL"}:
        raise problem(f"{text!r} is not a method", "for all methods, remove it")
    if is_method(text):
        # Whether it is one of `server.methods` is checked once everything is read.
        return text
    near = get_close_matches(upper, METHODS, 1, 0.6)
    # FETCH does not mean PATCH.
    is_alike = near and near[0][0] == upper[0]
    hint = (
        f"did you mean {near[0]}?"
        if is_alike
        else "for example GET or POST; write several as a list"
    )
    raise problem(f"{text!r} is not a method", hint)


METHOD_SCHEMA: Final = {
    "anyOf": [
        {"enum": list(METHODS)},
        {"type": "string", "pattern": f"^(?!({'|'.join(NEVER_FORWARDED)})$){METHOD_PATTERN}$"},
    ]
}

Method = Annotated[
    str,
    PlainValidator(read_method),
    WithJsonSchema(METHOD_SCHEMA),
]


def _as_list(value: object) -> object:
    """Wrap a single value in a list; return lists as they are."""
    return [value] if isinstance(value, str | int | float | Mapping) else value


def _off_as_none(value: object) -> object:
    """Read the word `off` as None."""
    return None if value == "off" and isinstance(value, str) else value


class ListOf:
    """Marks a list that may be written as its only value."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(_as_list, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        listed = handler(schema)
        return {"anyOf": [listed["items"], listed]}


class Off:
    """Marks an optional value that the word `off` switches off."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(_off_as_none, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        choices = handler(schema)["anyOf"]
        return {"anyOf": [{"const": "off"}, *choices]}
