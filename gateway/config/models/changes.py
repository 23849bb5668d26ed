"""Changes of a route to messages: paths and header fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.values.address import AddressError, parse_authority
from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.header_names import FRAMING, HEADER_NAME, HOP_BY_HOP
from gateway.config.values.paths import PathError, parse_path
from gateway.config.values.types import ListOf, describe, problem, problems, read_size
from gateway.config.values.units import SIZE_PATTERN
from gateway.config.values.written import FilledText, as_text, literal
from gateway.http.editing.template import HEADER, VARIABLES, Template, TemplateError, parse_template
from gateway.routing.rewrite import Rewrite

_FIELD_VARIABLES: Final = (*VARIABLES, HEADER)

_OWN: Final = {
    "host": "the Host for an upstream has its own key: upstream_host",
    "expect": "the gateway sets it",
    "date": "it is the time of the response",
}


_BRACES: Final = {"{": "{{", "}": "}}"}
"""How literal braces are written in a template."""


def _read_template(value: object) -> Template:
    if isinstance(value, Template):
        return value
    value = as_text(value)
    if not isinstance(value, str):
        message = f"found {describe(value)}, text was expected"
        quoted = str(value).lower() if isinstance(value, bool) else value
        hint = f'quote it: "{quoted}"' if isinstance(value, bool | int | float) else ""
        if isinstance(value, Mapping) and len(value) == 1 and None in value.values():
            hint = f'quote it: "{{{next(iter(value))}}}"'
        raise problem(message, hint)
    try:
        template = parse_template(literal(value, _BRACES).strip(), _FIELD_VARIABLES)
    except TemplateError as error:
        message = error.message
        if isinstance(value, FilledText) and message.startswith("{"):
            # It quotes the text between two braces, which may be a secret.
            message = f"{value.written} has an unknown variable"
        raise problem(message, error.hint, column=error.offset + 1) from None
    # The value of a variable or file is not shown: it may be a secret.
    return template._replace(text=value.written) if isinstance(value, FilledText) else template


FieldValue = Annotated[
    Template,
    PlainValidator(_read_template),
    WithJsonSchema({"type": "string", "examples": ["blue", "{client_ip}", "{header.x-team}"]}),
]


def _read_name(name: object) -> str:
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        raise problem(f"{describe(name)} is not the name of a header")
    if "*" in name or name.startswith("'"):
        raise problem(f"{name!r} is not a plain name", "use a name without quotes and patterns")
    # Applications behind CGI and WSGI read `_` and `-` alike, and so does the gateway.
    lower = name.lower().replace("_", "-")
    if lower in FRAMING:
        raise problem(f"{name} frames the body: the gateway sets it itself")
    if lower in HOP_BY_HOP:
        message = f"{name} concerns one connection: the gateway sets or removes it itself"
        raise problem(message)
    if lower in _OWN:
        raise problem(f"{name} cannot be changed here", _OWN[lower])
    return name


FieldName = Annotated[str, PlainValidator(_read_name), WithJsonSchema({"type": "string"})]


class FieldEdits(Model):
    """Header fields that are set, added or removed."""

    set: dict[FieldName, FieldValue] = Field(
        {}, description="Fields that replace those of the same name, if any."
    )
    add: dict[FieldName, FieldValue] = Field(
        {}, description="Fields that are added to those of the same name."
    )
    remove: Annotated[tuple[FieldName, ...], ListOf] = Field(
        (), description="Names of fields that are removed."
    )

    @model_validator(mode="after")
    def _check_names(self) -> FieldEdits:
        wrong: list[PydanticCustomError] = []
        said: dict[str, str] = {}
        for word, fields in (("set", self.set), ("add", self.add)):
            for name in fields:
                if name.lower() in said:
                    message = f"{name!r} is already under {said[name.lower()]}"
                    wrong.append(
                        problem(message, "name it once, in any case", under=(word, name, KEY))
                    )
                said.setdefault(name.lower(), word)
        for index, name in enumerate(self.remove):
            if said.get(name.lower()) == "set":
                message = f"{name!r} is both set and removed"
                hint = "set already replaces the old value"
                wrong.append(problem(message, hint, under=("remove", index)))
        if wrong:
            raise problems(wrong)
        return self

    @property
    def is_empty(self) -> bool:
        """Whether nothing is edited."""
        return not (self.set or self.add or self.remove)


class PathChange(NamedTuple):
    """Return the changes of a route to paths."""

    strip_prefix: str | None
    add_prefix: str | None
    rewrite: str | None


def compile_rewrite(pattern: str, change: PathChange) -> Rewrite | None:
    """Return how paths of a route are rewritten; None if they are not.

    Raises:
        PydanticCustomError: `problem`, under the key at fault.
    """
    if change == (None, None, None):
        return None
    if change.rewrite is None:
        return _with_prefixes(pattern, change)
    if change.strip_prefix is not None or change.add_prefix is not None:
        message = (
            "rewrite replaces the whole path, and cannot be combined with strip_prefix or "
            "add_prefix"
        )
        raise problem(message, "remove one of the two", under=("rewrite",))
    return _from_pattern(pattern, change.rewrite)


def _with_prefixes(pattern: str, change: PathChange) -> Rewrite:
    taken = 0
    pieces: list[str | int] = []
    if change.strip_prefix is not None:
        stripped = _segments(change.strip_prefix, "strip_prefix")
        taken = len(stripped)
        if pattern[1:].split("/")[:taken] != stripped:
            message = f"the route's path does not begin with {change.strip_prefix}"
            hint = f"use whole segments that {pattern} begins with"
            raise problem(message, hint, under=("strip_prefix",))
    if change.add_prefix is not None:
        pieces += _segments(change.add_prefix, "add_prefix")
    return _made("add_prefix", taken, pieces, keeps_rest=True)


def _made(key: str, taken: int, pieces: list[str | int], *, keeps_rest: bool) -> Rewrite:
    try:
        return Rewrite(taken, tuple(pieces), keeps_rest=keeps_rest)
    except ValueError as error:
        raise problem(str(error), "use segments of plain characters", under=(key,)) from None


def _segments(path: str, key: str) -> list[str]:
    """Return the segments of a prefix."""
    if path.endswith("/"):
        hint = f"for example {path.rstrip('/') or '/api'}"
        raise problem(f"{path!r} ends with a slash", hint, under=(key,))
    if key == "add_prefix" and ("{" in path or path.endswith("**")):
        message = f"{path!r} is a pattern"
        raise problem(message, "use plain text; rewrite takes patterns", under=(key,))
    if path.endswith("/**"):
        raise problem(f"{path!r} is a pattern", f"for example {path[:-3] or '/api'}", under=(key,))
    return path[1:].split("/")


def _from_pattern(pattern: str, path: str) -> Rewrite:
    group = re.search(r"\$[0-9]", path)
    if group:
        hint = "a parameter of the route is written {name}, and everything below it **"
        raise problem(f"unknown variable {group[0]}", hint, under=("rewrite",))
    taken = pattern[1:].split("/")
    wanted = path[1:].split("/")
    is_prefix = taken[-1] == "**"
    if is_prefix:
        taken.pop()
    keeps_rest = wanted[-1] == "**"
    if keeps_rest:
        wanted.pop()
        if not is_prefix:
            hint = f"{pattern} has no **; remove it here"
            raise problem("the ** has no counterpart in the route", hint, under=("rewrite",))
    pieces: list[str | int] = []
    for segment in wanted:
        if segment.startswith("{"):
            if segment not in taken:
                names = ", ".join(one for one in taken if one.startswith("{")) or "no parameters"
                message = f"the route's path has no {segment}"
                raise problem(message, f"{pattern} has {names}", under=("rewrite",))
            pieces.append(taken.index(segment))
        else:
            pieces.append(segment)
    return _made("rewrite", len(taken), pieces, keeps_rest=keeps_rest)


def _read_path(value: object) -> str:
    if not isinstance(value, str):
        raise problem(f"found {describe(value)}, a path such as /api was expected")
    try:
        return parse_path(value)
    except PathError as error:
        raise problem(error.message, error.hint) from None


PathText = Annotated[
    str,
    PlainValidator(_read_path),
    WithJsonSchema({"type": "string", "pattern": r"^\s*/", "examples": ["/api", "/v2/{id}"]}),
]


def _read_upstream_host(value: object) -> str:
    if value in ("client", "target"):
        return str(value)
    hint = "use client, target, or a host such as api.example.com"
    if not isinstance(value, str):
        raise problem(f"{describe(value)} is not valid here", hint)
    text = value.strip()
    if text.lower() in {"client", "target"}:
        raise problem(f"{describe(value)} is not valid here", f"write {text.lower()}")
    if text.lower() in {"on", "off", "yes", "no", "true", "false"}:
        raise problem(f"{describe(value)} is not a host", hint)
    try:
        return parse_authority(text)
    except AddressError as error:
        hint = error.hint if error.hint.startswith(("write", "did you")) else hint
        raise problem(f"{describe(value)} is not a host", hint) from None


def _read_max_body(value: object) -> int:
    return 0 if value == "off" else read_size(value)


UpstreamHost = Annotated[
    str,
    PlainValidator(_read_upstream_host),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "examples": ["client", "target", "api.example.com"]}
    ),
]

OwnMaxBody = Annotated[
    int,
    PlainValidator(_read_max_body),
    WithJsonSchema(
        {
            "anyOf": [
                # Not a constant: models that are off by default are recognised by it.
                {"type": "string", "pattern": "^off$"},
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": SIZE_PATTERN},
            ],
            "examples": ["16KiB", "1MiB"],
        }
    ),
]
"""Whole bytes; 0, which is written `off`, for any number."""
