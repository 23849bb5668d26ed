"""How to install optional libraries: the extras of this package."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "sluice-gateway"


def install_hint(extra: str) -> str:
    """The command that installs an extra where this process runs, to be copied as it is.

    The command names the libraries or the source folder, never this distribution: its name in a
    package index may belong to another project.
    """
    python = shlex.quote(sys.executable or "python3")
    return f"{python} -m pip install {' '.join(map(shlex.quote, libraries(extra)))}"


def libraries(extra: str) -> list[str]:
    """Return the requirements of an extra in pip's notation: `asyncmy<0.3,>=0.2.13`."""
    # Imported here, because only a missing library makes this necessary.
    from importlib.metadata import PackageNotFoundError, requires

    try:
        all_of_them = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        # Running from the source without being installed.
        return [f"{Path(__file__).parents[2]}[{extra}]"]
    parts = (one.partition(";") for one in all_of_them)
    return [name.strip() for name, _, marker in parts if f"extra == '{extra}'" in marker]
