"""The page about the library is run: every block of it, and what it shows is what comes."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any, Final

import pytest

PAGE: Final = Path(__file__).parents[2] / "docs" / "library.md"
_PYTHON: Final = re.compile(
    r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)

BLOCKS: Final = [
    (PAGE.read_text().count("\n", 0, found.start()) + 2, found[1], found[2] or "")
    for found in _PYTHON.finditer(PAGE.read_text())
]


@pytest.mark.parametrize(
    ("line", "code", "shown"), BLOCKS, ids=[f"line-{block[0]}" for block in BLOCKS]
)
def test_a_block_runs_and_prints_what_is_shown(line: int, code: str, shown: str) -> None:
    """As a separate program, with exactly the output that the page shows."""
    printed = io.StringIO()
    namespace: dict[str, Any] = {"__name__": "example"}
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (line - 1) + code, str(PAGE), "exec"), namespace)  # noqa: S102
    assert printed.getvalue() == shown
