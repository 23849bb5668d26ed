"""A new path for the upstream, made from the bytes of the original.

Segments are kept, removed and inserted, never decoded or encoded. The ways in which an upstream may
read the new path must be those in which it may have read the part that was kept, and no others: a
path whose readings (`gateway.routing.path`) differ is refused. So with `/api` stripped, `/api/../x`
and `/api//x` do not become `/../x` and `//x` (CVE-2026-40912 of Traefik).
"""

from __future__ import annotations

from gateway.base.errors import BadRequestError
from gateway.routing.path import canonical_path, is_plain, readings


class Rewrite:
    """How the paths of one route are rewritten.

    Args:
        taken: how many segments of a path the pieces replace.
        pieces: the segments put in their place: text, or the index of a replaced segment.
        keeps_rest: whether the segments after the replaced ones stay.

    Raises:
        ValueError: a piece of text can be read in several ways.
    """

    __slots__ = ("_keeps_rest", "_pieces", "_taken")

    def __init__(self, taken: int, pieces: tuple[str | int, ...], *, keeps_rest: bool) -> None:
        for piece in pieces:
            if isinstance(piece, str) and readings(f"/{piece}") != (f"/{piece}",):
                raise ValueError(f"{piece!r} can be read in several ways")
        self._taken = taken
        self._pieces = pieces
        self._keeps_rest = keeps_rest

    def apply(self, path: str) -> str:
        """Return the path for the upstream.

        Args:
            path: as it was sent, without the query; it matches the route.

        Raises:
            BadRequestError: the new path could be read in more ways than the original.
        """
        if path == "*":
            return path
        segments = path.split("/", self._taken + 1)[1:]
        if len(segments) < self._taken:
            raise _refused()
        rest = f"/{segments[self._taken]}" if len(segments) > self._taken else ""
        pieces = [piece if isinstance(piece, str) else segments[piece] for piece in self._pieces]
        kept = rest if self._keeps_rest else ""
        new = "".join([f"/{piece}" for piece in pieces]) + kept or "/"
        if not is_plain(path):
            if _below(segments[: self._taken], rest) != set(readings(path)):
                raise _refused()
            if not _below(pieces, kept).issuperset(readings(new)):
                raise _refused()
        return new


def _below(segments: list[str], rest: str) -> set[str]:
    """Yield all readings of segments that have one reading, followed by `rest`."""
    start = "".join([canonical_path(f"/{segment}") for segment in segments])
    if not rest:
        return {start or "/"}
    return {start + one for one in readings(rest)}


def _refused() -> BadRequestError:
    return BadRequestError("The path cannot be rewritten unambiguously", kind="path")
