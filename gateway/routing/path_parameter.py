"""The value of a `{name}` segment of the pattern that a request's path matches.

Servers read a path in different ways (`gateway.routing.path`). If the segment differs between these
readings, as in `/users/a%2Fb` and `/users/a;v=1`, the request is ambiguous: each of them may be the
one that the upstream acts on.
"""

from __future__ import annotations

from gateway.routing.escapes import unescape
from gateway.routing.path import is_plain, readings
from gateway.routing.request_view import RequestView
from gateway.routing.values import AMBIGUOUS, Read, Values


def parameters_of(pattern: str) -> dict[str, int]:
    """Return the names of a pattern's parameters, each with the index of its segment."""
    segments = enumerate(pattern.split("/")[1:])
    return {segment[1:-1]: index for index, segment in segments if segment.startswith("{")}


def compile_path_parameter(pattern: str, name: str) -> Read:
    """Return a function that reads a parameter of the paths that match a pattern.

    Escapes are decoded, so that the spellings of a segment that servers treat as equal have one
    value.

    Args:
        pattern: the path of a route, such as `/users/{id}/**`.
        name: the name of one of its parameters.

    Raises:
        ValueError: the pattern has no such parameter.
    """
    index = parameters_of(pattern).get(name)
    if index is None:
        raise ValueError(f"the pattern {pattern} has no parameter {{{name}}}")

    def read(request: RequestView) -> Values:
        path = request.path
        if is_plain(path):
            return path.split("/", index + 2)[index + 1]
        # Every reading has the segment: otherwise, the request would belong to another route.
        first, *others = {one.split("/", index + 2)[index + 1] for one in readings(path)}
        if others:
            return AMBIGUOUS
        return unescape(first.encode("ascii")).decode("utf-8", "surrogateescape")

    return read
