"""What a route requires of a request, and which of two routes is more specific.

Everything here happens once, when a configuration is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote

from gateway.base.errors import BadRequestError
from gateway.routing.host import normal_host
from gateway.routing.path import canonical_path
from gateway.routing.sender import ANYONE, Sender, covers_values

T = TypeVar("T")

Specificity = tuple[int, int, int, int, tuple[bool, ...], bool, int]

_is_parameter: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}").fullmatch


@dataclass(frozen=True, slots=True)
class PathShape:
    """A compiled path pattern.

    Attributes:
        segments: in canonical form; None stands for any one segment that is not empty.
        is_prefix: whether all paths below match too.
    """

    segments: tuple[str | None, ...]
    is_prefix: bool

    @property
    def exact_path(self) -> str | None:
        """The only path that matches, if there is exactly one."""
        if self.is_prefix or None in self.segments:
            return None
        return "/" + "/".join(segment or "" for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Pattern:
    """The conditions of one route; all must hold.

    Attributes:
        host: `api.example.com`, or `*.example.com` for one or more labels before it; None for any
            host, including requests without one.
        path: an exact path, `/v1/**` for `/v1` and all below, `/users/{id}` where a name in braces
            stands for one segment, and `/**` for everything. Text outside ASCII is read as UTF-8.
        methods: the methods, case-sensitive; empty means any.
        headers: pairs of a name and the value that the header must have, with `*` for any text, as
            in `wildcard`; `*` alone means that the header must be present.
        sender: what is required of the client.
        site: the host in normal form, wildcards as `.example.com`; empty for any.
        shape: the path, compiled.

    Raises:
        ValueError: the host or the path is not a pattern; the message says why.
    """

    host: str | None
    path: str
    methods: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    sender: Sender = ANYONE
    site: str = field(init=False, repr=False, compare=False)
    shape: PathShape = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "site", _parse_host(self.host))
        object.__setattr__(self, "shape", _parse_path(self.path))

    @property
    def specificity(self) -> Specificity:
        """A sort key: the more specific the pattern, the smaller.

        Host first (exact, then the longest wildcard, then any), then path (exact, then
        parameters compared segment by segment, then the longest prefix), then whether
        methods are named, then the number of further conditions: each header, each cookie, each
        detail of the certificate, and the client's address.
        """
        is_any_below = self.site.startswith(".")
        host_rank = 1 if is_any_below else 0 if self.site else 2
        shape = self.shape
        parameters = tuple(segment is None for segment in shape.segments)
        if shape.is_prefix:
            path_rank, length = 2, len(shape.segments)
        else:
            path_rank, length = int(any(parameters)), 0
        return (
            host_rank,
            -len(self.site) if is_any_below else 0,
            path_rank,
            -length,
            parameters,
            not self.methods,
            -len(self.headers) - self.sender.count,
        )


def shadowed(entries: Sequence[tuple[Pattern, T]]) -> list[tuple[int, int]]:
    """Find routes that no request can reach because one other route takes them all.

    Only routes with the same host and path can hide each other: a more specific host or path never
    covers all requests of a less specific one.

    Returns:
        Pairs of indexes: the unreachable route, and the first route that hides it.
    """
    groups: dict[tuple[str, PathShape], list[int]] = {}
    for index, (pattern, _) in enumerate(entries):
        groups.setdefault((pattern.site, pattern.shape), []).append(index)
    found = []
    for group in groups.values():
        ranked = sorted(group, key=lambda index: entries[index][0].specificity)
        for place, index in enumerate(ranked):
            taker = next(
                (by for by in ranked[:place] if _covers(entries[by][0], entries[index][0])),
                None,
            )
            if taker is not None:
                found.append((index, taker))
    return sorted(found)


def may_meet(one: Pattern, other: Pattern) -> bool:
    """Return whether a request may match both: by host, path and method."""
    if one.methods and other.methods and not _methods(one) & _methods(other):
        return False
    return _sites_meet(one.site, other.site) and _shapes_meet(one.shape, other.shape)


def _methods(pattern: Pattern) -> set[str]:
    return {*pattern.methods, *(("HEAD",) if "GET" in pattern.methods else ())}


def _sites_meet(one: str, other: str) -> bool:
    return (
        not one
        or one == other
        or not other
        or (one.startswith(".") and other.endswith(one))
        or (other.startswith(".") and one.endswith(other))
    )


def _shapes_meet(one: PathShape, other: PathShape) -> bool:
    shorter, longer = sorted((one, other), key=lambda shape: len(shape.segments))
    if len(shorter.segments) < len(longer.segments) and not shorter.is_prefix:
        return False
    return all(
        mine == its or (mine is None and its != "") or (its is None and mine != "")
        for mine, its in zip(shorter.segments, longer.segments, strict=False)
    )


def _covers(general: Pattern, special: Pattern) -> bool:
    """Return whether `general` allows all that `special` allows, apart from host and path."""
    if general.methods and not (special.methods and set(special.methods) <= set(general.methods)):
        return False
    headers = _lower(general.headers), _lower(special.headers)
    return covers_values(*headers) and general.sender.covers(special.sender)


def _lower(values: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in values]


def _parse_host(host: str | None) -> str:
    if host is None:
        return ""
    wildcard = host.startswith("*.")
    name = host[2:] if wildcard else host
    try:
        normal = normal_host(name)
    except BadRequestError:
        raise ValueError(f"{host!r} is not a host name or *.name") from None
    if ":" in name and not name.endswith("]"):
        raise ValueError(f"{host!r} has a port; routes match on the name alone")
    return f".{normal}" if wildcard else normal


def _parse_path(path: str) -> PathShape:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} does not begin with a slash")
    segments = path[1:].split("/")
    is_prefix = segments[-1] == "**"
    if is_prefix:
        segments.pop()
    if "" in (segments if is_prefix else segments[:-1]):
        raise ValueError(f"{path!r} has an empty segment")
    return PathShape(tuple(_parse_segment(path, segment) for segment in segments), is_prefix)


def _parse_segment(path: str, segment: str) -> str | None:
    if _is_parameter(segment):
        return None
    if "{" in segment or "}" in segment:
        raise ValueError(f"{path!r}: a parameter is a whole segment, such as {{name}}")
    if "*" in segment:
        raise ValueError(f"{path!r}: ** stands alone at the end; an asterisk is written %2A")
    escaped = quote(segment, safe="%!\"$&'()*+,:;<=>@[]^`|~\\#?")
    try:
        canonical = canonical_path(f"/{escaped}")[1:]
    except BadRequestError as error:
        raise ValueError(f"{path!r}: {error.title[0].lower()}{error.title[1:]}") from None
    if segment and not canonical:
        raise ValueError(f"{path!r} has a dot segment")
    if ";" in canonical or "%2F" in canonical:
        # Upstreams cut off what follows a semicolon, or decode the slash, or do neither; requests
        # whose route depends on that are refused.
        raise ValueError(f"{path!r}: ; and %2F can be read in several ways; use {{name}} or /**")
    return canonical
