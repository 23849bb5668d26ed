"""What a route changes of the messages that pass: paths and header fields."""

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
from gateway.config.values.written import Filled, as_text, literal
from gateway.http.editing.template import HEADER, VARIABLES, Template, TemplateError, parse_template
from gateway.routing.rewrite import Rewrite

_FIELD_VARIABLES: Final = (*VARIABLES, HEADER)

_OWN: Final = {
    "host": "the host that an upstream is told has a key of its own: upstream_host",
    "expect": "the gateway answers for it",
    "date": "it says when the answer was made",
}


_BRACES: Final = {"{": "{{", "}": "}}"}
"""How plain braces are written in a template."""


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
        if isinstance(value, Filled) and message.startswith("{"):
            # It quotes what stands between two braces, and that may be a secret.
            message = f"{value.written} has a variable that is not known"
        raise problem(message, error.hint, column=error.offset + 1) from None
    # What a variable or a file holds is not to be shown: it may be a secret.
    return template._replace(text=value.written) if isinstance(value, Filled) else template


FieldValue = Annotated[
    Template,
    PlainValidator(_read_template),
    WithJsonSchema({"type": "string", "examples": ["blue", "{client_ip}", "{header.x-team}"]}),
]


def _read_name(name: object) -> str:
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        raise problem(f"{describe(name)} is not the name of a header")
    if "*" in name or name.startswith("'"):
        raise problem(f"{name!r} is a name as it stands", "a name without quotes, and no pattern")
    # Applications behind CGI and WSGI read `_` and `-` alike, and so does the gateway.
    lower = name.lower().replace("_", "-")
    if lower in FRAMING:
        raise problem(f"{name} frames the body: the gateway writes it itself")
    if lower in HOP_BY_HOP:
        message = f"{name} concerns one connection: the gateway writes it itself, or not at all"
        raise problem(message)
    if lower in _OWN:
        raise problem(f"{name} cannot be changed here", _OWN[lower])
    return name


FieldName = Annotated[str, PlainValidator(_read_name), WithJsonSchema({"type": "string"})]


class FieldEdits(Model):
    """Header fields that are set, added or removed."""

    set: dict[FieldName, FieldValue] = Field(
        {}, description="Fields in place of those of the same name, if there are any."
    )
    add: dict[FieldName, FieldValue] = Field(
        {}, description="Fields beside those of the same name."
    )
    remove: Annotated[tuple[FieldName, ...], ListOf] = Field((), description="Names of fields.")

    @model_validator(mode="after")
    def _check_names(self) -> FieldEdits:
        wrong: list[PydanticCustomError] = []
        said: dict[str, str] = {}
        for word, fields in (("set", self.set), ("add", self.add)):
            for name in fields:
                if name.lower() in said:
                    message = f"{name!r} is named under {said[name.lower()]} already"
                    wrong.append(problem(message, "once, in any case", under=(word, name, KEY)))
                said.setdefault(name.lower(), word)
        for index, name in enumerate(self.remove):
            if said.get(name.lower()) == "set":
                message = f"{name!r} is both set and removed"
                hint = "set replaces what was there"
                wrong.append(problem(message, hint, under=("remove", index)))
        if wrong:
            raise problems(wrong)
        return self

    @property
    def is_empty(self) -> bool:
        """Whether nothing is edited."""
        return not (self.set or self.add or self.remove)


class PathChange(NamedTuple):
    """What a route does to paths; the keys of the same names, or None."""

    strip_prefix: str | None
    add_prefix: str | None
    rewrite: str | None


def compile_rewrite(pattern: str, change: PathChange) -> Rewrite | None:
    """How paths of a route are rewritten; None if they are not.

    Raises:
        PydanticCustomError: `problem`, under the key to blame.
    """
    if change == (None, None, None):
        return None
    if change.rewrite is None:
        return _with_prefixes(pattern, change)
    if change.strip_prefix is not None or change.add_prefix is not None:
        message = "rewrite says the whole path: no prefix is stripped or added besides"
        raise problem(message, "one of the two", under=("rewrite",))
    return _from_pattern(pattern, change.rewrite)


def _with_prefixes(pattern: str, change: PathChange) -> Rewrite:
    taken = 0
    pieces: list[str | int] = []
    if change.strip_prefix is not None:
        stripped = _segments(change.strip_prefix, "strip_prefix")
        taken = len(stripped)
        if pattern[1:].split("/")[:taken] != stripped:
            message = f"the route's path does not begin with {change.strip_prefix}"
            hint = f"what {pattern} begins with, whole segments of it"
            raise problem(message, hint, under=("strip_prefix",))
    if change.add_prefix is not None:
        pieces += _segments(change.add_prefix, "add_prefix")
    return _made("add_prefix", taken, pieces, keeps_rest=True)


def _made(key: str, taken: int, pieces: list[str | int], *, keeps_rest: bool) -> Rewrite:
    try:
        return Rewrite(taken, tuple(pieces), keeps_rest=keeps_rest)
    except ValueError as error:
        raise problem(str(error), "segments of plain characters", under=(key,)) from None


def _segments(path: str, key: str) -> list[str]:
    """The segments of a prefix."""
    if path.endswith("/"):
        hint = f"such as {path.rstrip('/') or '/api'}"
        raise problem(f"{path!r} ends with a slash", hint, under=(key,))
    if key == "add_prefix" and ("{" in path or path.endswith("**")):
        message = f"{path!r} is a pattern"
        raise problem(message, "text only; rewrite takes patterns", under=(key,))
    if path.endswith("/**"):
        raise problem(f"{path!r} is a pattern", f"such as {path[:-3] or '/api'}", under=(key,))
    return path[1:].split("/")


def _from_pattern(pattern: str, path: str) -> Rewrite:
    group = re.search(r"\$[0-9]", path)
    if group:
        hint = "a segment of the route is {name}, and what is below it **"
        raise problem(f"{group[0]} stands for nothing here", hint, under=("rewrite",))
    taken = pattern[1:].split("/")
    wanted = path[1:].split("/")
    is_prefix = taken[-1] == "**"
    if is_prefix:
        taken.pop()
    keeps_rest = wanted[-1] == "**"
    if keeps_rest:
        wanted.pop()
        if not is_prefix:
            hint = f"{pattern} has no ** of its own; leave it out here"
            raise problem("there is nothing that ** could stand for", hint, under=("rewrite",))
    pieces: list[str | int] = []
    for segment in wanted:
        if segment.startswith("{"):
            if segment not in taken:
                names = ", ".join(one for one in taken if one.startswith("{")) or "no parameters"
                message = f"{segment} is not in the route's path"
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
    hint = "client, target, or a host such as api.example.com"
    if not isinstance(value, str):
        raise problem(f"found {describe(value)}", hint)
    text = value.strip()
    if text.lower() in {"client", "target"}:
        raise problem(f"found {describe(value)}", f"write {text.lower()}")
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
                # Not as a constant: that is what is off by default is told by.
                {"type": "string", "pattern": "^off$"},
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": SIZE_PATTERN},
            ],
            "examples": ["16KiB", "1MiB"],
        }
    ),
]
"""Whole bytes; 0, which is written `off`, for any number."""
