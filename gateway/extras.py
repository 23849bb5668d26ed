"""How a library is had that only some need: the extras of this package."""

from __future__ import annotations

import shlex
import sys


def remedy(extra: str) -> str:
    """The command that installs an extra where this process runs, to be copied as it is."""
    python = shlex.quote(sys.executable or "python3")
    return f"{python} -m pip install 'sluice-gateway[{extra}]'"
