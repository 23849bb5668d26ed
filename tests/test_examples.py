"""Every example does what its README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.processes import free_port

ROOT: Final = Path(__file__).parent.parent
EXAMPLES: Final = sorted(path.parent for path in ROOT.glob("examples/*/run.sh"))


SLOWNESS_S: Final = 20
"""How much later than a reader's the test's last request may come."""


def _shown(readme: str) -> str:
    blocks = re.findall(r"^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, "an example shows its output in one text block"
    return str(blocks[0])


def _parts(output: str) -> tuple[list[str], list[int]]:
    """The lines without their seconds, and the seconds."""
    seconds = [int(found) for found in re.findall(r"retry-after=(\d+)", output)]
    return re.sub(r"retry-after=\d+", "retry-after", output).splitlines(), seconds


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_prints_what_its_readme_shows(example: Path) -> None:
    """The script ends well and prints the README's block; seconds may have gone by."""
    ports = {
        name: str(free_port()) for name in ("PORT", "SECOND_PORT", "UPSTREAM_PORT", "REDIS_PORT")
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [example / "run.sh"],
        env={**os.environ, **ports, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines, seconds = _parts(done.stdout)
    shown_lines, shown_seconds = _parts(_shown((example / "README.md").read_text()))
    assert lines == shown_lines
    assert all(
        shown - SLOWNESS_S <= found <= shown
        for shown, found in zip(shown_seconds, seconds, strict=True)
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_listed_by_its_question(example: Path) -> None:
    """The overview asks the question in the example's title, and links to it."""
    title = (example / "README.md").read_text().splitlines()[0].removeprefix("# ")
    line = f"| {title} | [{example.name}]({example.name}/) |"
    assert line in (ROOT / "examples/README.md").read_text()
