"""How a library is had that only some need: the extras of this package."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "sluice-gateway"


def install_hint(extra: str) -> str:
    """The command that installs an extra where this process runs, to be copied as it is.

    It names the libraries, or the folder of the source, and never this distribution: in a package
    index its name may belong to somebody else.
    """
    python = shlex.quote(sys.executable or "python3")
    return f"{python} -m pip install {' '.join(map(shlex.quote, libraries(extra)))}"


def libraries(extra: str) -> list[str]:
    """What an extra consists of, as pip takes it: `asyncmy<0.3,>=0.2.13`."""
    # Only who lacks something pays for the import.
    from importlib.metadata import PackageNotFoundError, requires

    try:
        all_of_them = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        # It runs from its source without having been installed.
        return [f"{Path(__file__).parents[2]}[{extra}]"]
    parts = (one.partition(";") for one in all_of_them)
    return [name.strip() for name, _, marker in parts if f"extra == '{extra}'" in marker]
