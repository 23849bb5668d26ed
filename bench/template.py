"""Configuration files with `@name@` where a value belongs; `$` and `{}` stay as they are."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bench.errors import BenchError

_TEMPLATES = Path(__file__).resolve().parent / "templates"
_PLACE = re.compile(r"@([a-z_][a-z0-9_]*)@")


def render(template: str, target: Path, **values: str) -> Path:
    """Write the template to `target` with its places filled.

    Raises:
        BenchError: the template names a value that was not given.
    """
    text = (_TEMPLATES / template).read_text(encoding="utf-8")

    def fill(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise BenchError(f"{template}: no value for {match[0]}")
        return values[match[1]]

    target.write_text(_PLACE.sub(fill, text), encoding="utf-8")
    return target


def nginx_user() -> str:
    """The `user` directive: root's workers must read our scratch files; others have no choice."""
    return "user root;" if os.geteuid() == 0 else ""
