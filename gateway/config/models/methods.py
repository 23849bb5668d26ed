"""Methods that a configuration adds to the known ones, and unknown method names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Final

from pydantic import PlainValidator, WithJsonSchema

from gateway.config.models.shorthand import at
from gateway.config.values.findings import Finding, Path
from gateway.config.values.types import describe, problem
from gateway.routing.methods import METHOD_PATTERN, METHODS, NEVER_FORWARDED, is_method

OTHER_PROTOCOL: Final = "PRI"
"""The beginning of HTTP/2 (RFC 9113, section 3.4), registered so that no method has this name."""

_NEVER: Final = "|".join((*NEVER_FORWARDED, OTHER_PROTOCOL))
_PATTERN: Final = f"^(?!({_NEVER})$){METHOD_PATTERN}$"


def _read_more(value: object) -> str:
    """Read the name of an added method."""
    if not isinstance(value, str):
        raise problem(f"found {describe(value)}, a method such as LIST was expected")
    text = value.strip()
    upper = text.upper()
    if upper in NEVER_FORWARDED:
        raise problem(f"{upper} is always answered with 405", "remove it")
    if upper == OTHER_PROTOCOL:
        raise problem(f"{upper} is the beginning of HTTP/2", "remove it")
    if is_method(text):
        return text
    if is_method(upper):
        raise problem(f"methods are written in capitals, not {text!r}", f"write {upper}")
    hint = "use capital letters, digits, - and _, for example LIST or VERSION-CONTROL"
    raise problem(f"{text!r} is not a valid method", hint)


MoreMethods = Annotated[
    str,
    PlainValidator(_read_more),
    WithJsonSchema({"type": "string", "pattern": _PATTERN, "examples": ["LIST"]}),
]


def unknown_methods(data: object) -> Iterator[Finding]:
    """Return unknown methods of routes and retries, in plain expanded data."""
    known = {*METHODS, *NEVER_FORWARDED, *(one for _, one in _written(data, ("server", "methods")))}
    routes, upstreams = at(data, ("routes",)), at(data, ("upstreams",))
    places: list[Path] = []
    if isinstance(routes, list):
        places += [("routes", index, "methods") for index in range(len(routes))]
    if isinstance(upstreams, Mapping):
        places += [("upstreams", name, "retry", "methods") for name in upstreams]
    for place in places:
        for path, method in _written(data, place):
            if is_method(method) and method not in known:
                yield Finding(path, f"{method!r} is not a method", hint_for(method, known))


def _written(data: object, place: Path) -> Iterator[tuple[Path, str]]:
    """Yield the methods that are written in one place, alone or as a list."""
    value = at(data, place)
    if isinstance(value, str):
        yield place, value.strip()
    for index, one in enumerate(value if isinstance(value, list) else ()):
        if isinstance(one, str):
            yield (*place, index), one.strip()


def hint_for(method: str, known: Collection[str]) -> str:
    """Return the hint for an unknown method."""
    near = get_close_matches(method, sorted(known), 1, 0.6)
    # FETCH does not mean PATCH.
    if near and near[0][0] == method[0]:
        return f"did you mean {near[0]}? Add other methods to server.methods"
    return f"if clients use it, add server: {{ methods: {method} }}"
