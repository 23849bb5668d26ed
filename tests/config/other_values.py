"""Every option of every part of many configurations, and other values for it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from gateway.config.checking.check import Checked, check_text
from gateway.config.explaining.options import PAIR
from gateway.config.models.consistency import PART_PATTERN
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.address import Address
from gateway.config.values.types import LimitLine
from gateway.http.editing.template import parse_template
from gateway.limits.expression import parse_expression

FOLDER: Final = Path(__file__).parent
DASHES: Final = "-----\n"
PAIRS: Final = sorted((FOLDER / "differences").glob("*.yaml"))
"""Pairs of configurations, with the sentences on what differs."""


class Place(NamedTuple):
    """An option in a configuration.

    Attributes:
        config: the configuration.
        path: to the model that has the option: fields, keys and indexes.
        model: the type of that model.
        name: the name of the option.
        value: its value.
    """

    config: GatewayConfig
    path: tuple[Any, ...]
    model: type[BaseModel]
    name: str
    value: Any

    @property
    def key(self) -> tuple[str, str]:
        """Return the option, wherever it is."""
        return self.model.__name__, self.name


def checked(text: str) -> Checked:
    """Return a checked configuration; comments such as `# env: A=b` set its variables."""
    lines = [line[7:] for line in text.splitlines() if line.startswith("# env: ")]
    environ = dict(word.split("=", 1) for line in lines for word in line.split())
    return check_text(text, environ=environ)


def config(text: str) -> GatewayConfig:
    """Return the model of a configuration."""
    return checked(text).config


def options_of(config: GatewayConfig) -> Iterator[Place]:
    """Yield every option of a configuration."""
    left: list[tuple[tuple[Any, ...], Any]] = [((), config)]
    while left:
        path, value = left.pop()
        if isinstance(value, BaseModel):
            for name in type(value).model_fields:
                one = getattr(value, name)
                yield Place(config, path, type(value), name, one)
                left.append(((*path, name), one))
        elif isinstance(value, dict):
            left += [((*path, key), one) for key, one in value.items()]
        elif type(value) is tuple:
            left += [((*path, index), one) for index, one in enumerate(value)]


def replaced(value: Any, path: tuple[Any, ...], name: str, new: Any) -> Any:
    """Return a model with another value of one option somewhere in it."""
    if not path:
        return value.model_copy(update={name: new})
    first, rest = path[0], path[1:]
    if isinstance(value, BaseModel):
        inner = replaced(getattr(value, first), rest, name, new)
        return value.model_copy(update={first: inner})
    inner = replaced(value[first], rest, name, new)
    if isinstance(value, dict):
        return {**value, first: inner}
    return (*value[:first], inner, *value[first + 1 :])


def differs(one: Any, other: Any) -> bool:
    """Return whether values differ in more than their order."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return {repr(each) for each in one} != {repr(each) for each in other}
    return bool(one != other)


def another(place: Place) -> Any:
    """Return another value that an option may have; the same if there is none here."""
    found = (value for value in _values(place) if differs(value, place.value))
    return next(found, place.value)


def _corpus() -> Iterator[GatewayConfig]:
    """Yield all configurations that golden files have."""
    for path in sorted((FOLDER / "golden").glob("ok-*.yaml")):
        yield config(path.read_text().partition("\n" + DASHES)[0] + "\n")
    for path in PAIRS:
        yield from map(config, path.read_text().split(DASHES)[:2])


CORPUS: Final = list(_corpus())
PLACES: Final = [place for each in CORPUS for place in options_of(each)]
_SEEN: Final[dict[tuple[str, str], list[Any]]] = {}
for _place in PLACES:
    _SEEN.setdefault(_place.key, []).append(_place.value)

_FIXED: Final[dict[tuple[str, str], Any]] = {
    ("CostConfig", "reserve"): parse_expression("7"),
    ("CostConfig", "settle"): parse_expression("bytes / 7"),
    ("MigrateConfig", "to"): "redis://another:1/0",
    ("PolicyConfig", "limits"): (LimitLine.parse("77/s per host"),),
    ("RouteConfig", "name"): "another",
    ("StoreConfig", "url"): "redis://another:1/0",
}
"""Other values of options that few values are valid for."""
_ADDED: Final[dict[tuple[str, str], Any]] = {
    ("GatewayConfig", "policies"): next(one for each in CORPUS for one in each.policies.values()),
    ("GatewayConfig", "upstreams"): next(one for each in CORPUS for one in each.upstreams.values()),
}
"""What is added to mappings by name."""


def _values(place: Place) -> Iterator[Any]:
    """Yield values that an option may have: those that lead somewhere, or any of its type."""
    value = place.value
    if place.key in _FIXED:
        yield _FIXED[place.key]
    elif place.key in _ADDED:
        yield {**value, "more": _ADDED[place.key]}
    elif place.key == ("GatewayConfig", "routes"):
        yield value[1:]
    elif place.key == ("RouteConfig", "upstream"):
        yield from place.config.upstreams if value else ()
    elif place.key == ("RouteConfig", "policies"):
        yield from ((*value, name) for name in place.config.policies if name not in value)
        yield value[1:]
    elif not (place.model.__name__ == "ListenerTls" and place.name in PAIR and value is None):
        # A certificate without a key is none.
        yield from (seen for seen in _SEEN[place.key] if type(seen) is type(value))
        yield from (seen for seen in _SEEN[place.key] if value is None and seen is not None)
        yield from _made(place)


def _made(place: Place) -> Iterator[Any]:
    """Yield values of the type of an option."""
    value, info = place.value, place.model.model_fields[place.name]
    parts = list(_parts(info.annotation))
    yield from (one for part in parts if get_origin(part) is Literal for one in get_args(part))
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | Fraction):
        yield value + 1
    elif isinstance(value, str):
        yield "11%" if PART_PATTERN in repr(info.metadata) or value.endswith("%") else f"{value}x"
    elif isinstance(value, dict):
        yield {"X-Another": parse_template("1") if place.name in {"set", "add"} else "1"}
    elif isinstance(value, tuple):
        yield from (value[1:], ("another",))
    else:
        yield from (one for kind, one in _OF_TYPE.items() if kind in parts)


_OF_TYPE: Final[dict[Any, Any]] = {
    bool: True,
    int: 7,
    str: "another",
    Path: Path("/another"),
    Address: Address("127.0.0.9", 9),
}


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield a type, and what it consists of."""
    yield annotation
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _parts(part)
