"""Values of options as a configuration would have them, without secrets.

The unit of a number is found through the JSON Schema of its option, so an option that is added
needs no code here. What differs between two configurations is for `options`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Any, Final, get_args

from pydantic import WithJsonSchema

from gateway.config.models.balancing import HashBy, HealthConfig
from gateway.config.models.consistency import PART_PATTERN
from gateway.config.models.service import AdminConfig
from gateway.config.models.upstreams import Target
from gateway.config.values.base import Model
from gateway.config.values.redaction import HIDDEN, redact
from gateway.config.values.store_url import store_url_schema
from gateway.config.values.types import LimitLine, Off
from gateway.config.values.units import (
    DELAY_PATTERN,
    DURATION_PATTERN,
    SIZE_PATTERN,
    SPEED_PATTERN,
    format_size,
    write_duration,
    write_size,
)
from gateway.config.values.written import FilledText, is_credential
from gateway.http.editing.template import Template

MAX_TEXT: Final = 80
"""Longer texts, such as pages, are shown by their size."""
MAX_SHOWN: Final = 200
"""Longer lists and mappings are cut."""

_UNITS: Final[Mapping[str, Callable[[int], str]]] = {
    DURATION_PATTERN: write_duration,
    DELAY_PATTERN: write_duration,
    SPEED_PATTERN: lambda speed: f"{write_size(speed)}/s",
    # An option whose size may be `off` keeps that as 0.
    SIZE_PATTERN: lambda size: write_size(size) if size else "off",
    "^0?o?[0-7]{3}$": lambda mode: f"0{mode:o}",
}
"""How numbers are written, by the pattern of their option."""

_EMPTY: Final[Mapping[tuple[str, str], str]] = {
    ("RouteConfig", "client"): "any client",
    ("RouteConfig", "host"): "any host",
    ("RouteConfig", "methods"): "any method",
    ("HealthConfig", "host"): "the host of the target",
    ("HealthConfig", "status"): "200 to 399",
    ("MigrateConfig", "policies"): "all policies",
    ("UpstreamTlsConfig", "ca"): "the authorities of the system",
    ("UpstreamTlsConfig", "server_name"): "the host of the target",
}
"""What an option means that is empty, where it is neither `off` nor `none`."""


class Notation:
    """How the values of an option are written.

    Args:
        model: the model that has the option.
        name: its name there.
    """

    __slots__ = ("_empty", "_is_of_cookies", "_is_secret", "_write", "is_part")

    def __init__(self, model: type[Model], name: str) -> None:
        info = model.model_fields[name]
        schemas = list(_schemas(info.annotation, info.metadata))
        patterns = {str(one["pattern"]) for one in schemas if "pattern" in one}
        self.is_part = PART_PATTERN in patterns
        self._write = next((_UNITS[one] for one in _UNITS if one in patterns), str)
        is_off = any(isinstance(one, type) and one is Off for one in info.metadata) or any(
            one.get("type") == "boolean" or "off" in one.get("enum", ()) for one in schemas
        )
        self._empty = _EMPTY.get((model.__name__, name), "off" if is_off else "none")
        # As in a header field Cookie, values are credentials, whatever their names.
        self._is_of_cookies = name == "cookies"
        self._is_secret = not info.repr and info.json_schema_extra is not store_url_schema

    def show(self, value: object) -> str:
        """Return a value of the option."""
        if value is None or value in ((), {}):
            return self._empty
        if self._is_of_cookies and isinstance(value, Mapping):
            return _mapping(value, "Cookie")
        return HIDDEN if self._is_secret else _show(value, self._write)


@cache
def option(model: type[Model], name: str) -> Notation:
    """Return how the values of an option are written."""
    return Notation(model, name)


def _schemas(annotation: object, metadata: list[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the schemas of a type and of what it consists of."""
    for one in metadata:
        if isinstance(one, WithJsonSchema) and one.json_schema is not None:
            yield one.json_schema
            yield from one.json_schema.get("anyOf", ())
    for part in get_args(annotation):
        yield from _schemas(part, list(getattr(part, "__metadata__", ())))


def _show(value: object, write: Callable[[int], str] = str) -> str:
    """Return a value of any type; `write` is for the numbers in it."""
    for kind, shown in _TYPES:
        if isinstance(value, kind):
            return shown(value, write)
    return "none" if value is None else _text(str(value))


def field(name: str, value: object) -> str:
    """Return a value that has a name, such as that of a header field, without credentials."""
    is_fixed = not isinstance(value, FilledText) and value != "*"
    if isinstance(value, Template):
        is_fixed = "${" not in value.text and not value.names
    if is_fixed and isinstance(value, str | int | Template) and is_credential(name):
        return HIDDEN
    return _show(value)


def pairs(match: tuple[tuple[str, str], ...]) -> str:
    """Return the descriptor of a rule in one line."""
    return ",".join(f"{key}={field(key, value)}" for key, value in match)


def _model(value: Model) -> str:
    short = _SHORT.get(type(value))
    text = short(value) if short is not None else ""
    if text:
        return text
    fields = type(value).model_fields
    said = [
        name
        for name, info in fields.items()
        if getattr(value, name) != info.get_default(call_default_factory=True)
    ]
    shown = [f"{name}: {_option_of(value, name)}" for name in said or list(fields)[:1]]
    return _cut(f"{{{', '.join(shown)}}}")


def _option_of(value: Model, name: str) -> str:
    one = getattr(value, name)
    if name == "match":
        return pairs(one)
    return option(type(value), name).show(one)


def _target(value: Any) -> str:
    return value.url if value.weight == 1 else f"{value.url} (weight {value.weight})"


def _health(value: Any) -> str:
    """Return the short form of health checks; empty if they have options."""
    usual = HealthConfig.model_construct(path=value.path)
    return (value.path or "tcp") if value == usual else ""


_SHORT: Final[Mapping[type[Model], Callable[[Any], str]]] = {
    Target: _target,
    HealthConfig: _health,
    AdminConfig: lambda admin: str(admin.listen),
}
"""Models that have a short form in a file."""


def _mapping(values: Mapping[str, object], name: str = "") -> str:
    shown = [f"{key}: {field(name or key, value)}" for key, value in values.items()]
    return _cut(f"{{{', '.join(shown)}}}")


def _list(shown: list[str]) -> str:
    return shown[0] if len(shown) == 1 else _cut(f"[{', '.join(shown)}]")


def _text(text: str) -> str:
    if len(text) > MAX_TEXT or not text.isprintable():
        return f"{format_size(len(text.encode(errors='replace')))} of text"
    return redact(text) if "://" in text else text or '""'


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


_TYPES: Final[tuple[tuple[Any, Callable[[Any, Callable[[int], str]], str]], ...]] = (
    (Model, lambda model, _: _model(model)),
    (Template, lambda template, _: _text(template.text)),
    (Mapping, lambda mapping, _: _mapping(mapping)),
    (list | tuple, lambda values, write: _list([_show(one, write) for one in values])),
    (bool, lambda switch, _: "on" if switch else "off"),
    (int, lambda number, write: write(int(number))),
    (Fraction, lambda number, _: f"{float(number):.6f}".rstrip("0").rstrip(".")),
    (LimitLine, lambda line, _: " ".join(line.text.split())),
    (HashBy, lambda balance, _: f"{{hash: {balance.text}}}"),
    (FilledText, lambda text, _: _text(text.written)),
)
"""How values of each type are written; a type comes before those that it is one of."""
