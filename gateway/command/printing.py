"""How commands print problems, and their exit statuses."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from gateway.base.errors import Problem

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


def print_problems(problems: Iterable[Problem], label: str = "") -> None:
    """Print problems as a compiler does, to stderr; `label` says of what kind they are."""
    from gateway.config.explaining.render import render

    text = render(problems, label)
    if text:
        print(text, file=sys.stderr)
