"""Whether the hot modules of this gateway are compiled; see `docs/compiling.md`."""

from __future__ import annotations

from typing import Final

BUILD: Final = "pure Python" if __file__.endswith(".py") else "compiled"
"""What `sluice --version` and the log say. This module is compiled with the hot ones."""
