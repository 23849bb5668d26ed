"""What is wrong with a configuration, before it has a place in a file."""

from __future__ import annotations

from typing import Final, NamedTuple

Path = tuple[str | int, ...]

KEY: Final = -1
"""As the last part of a path: the key itself, not the value under it."""


class Finding(NamedTuple):
    """Something wrong that has a path but not yet a place in a file."""

    path: Path
    message: str
    hint: str = ""
    column: int = 0
