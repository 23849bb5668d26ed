"""Problems of a configuration before they have a position in a file."""

from __future__ import annotations

from typing import Final, NamedTuple

Path = tuple[str | int, ...]

KEY: Final = -1
"""As the last part of a path: the key itself, not its value."""


class Finding(NamedTuple):
    """A problem with a path but without a position in a file."""

    path: Path
    message: str
    hint: str = ""
    column: int = 0
