"""One file for each option and each mistake: a configuration, dashes, what comes of it.

What comes of it is `OK`, the explanation of `explain`, the warnings, or the problems, as they
are shown. Variables are set by comments such as `# env: PORT=8080`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from gateway.base.errors import ConfigError
from gateway.config.checking.check import check_text
from gateway.config.explaining.explain import explain
from gateway.config.explaining.render import render
from gateway.config.reading import source

CASES: Final = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
DASHES: Final = "\n-----\n"


def _environ(text: str) -> dict[str, str]:
    lines = [line[7:] for line in text.splitlines() if line.startswith("# env: ")]
    return dict(word.split("=", 1) for line in lines for word in line.split())


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_the_result_is_as_written(path: Path) -> None:
    """A configuration gives exactly the explanation, warnings or problems in its file."""
    text, _, expected = path.read_text().rpartition(DASHES)
    expected = expected.rstrip("\n")

    assert expected in _results(text + "\n")


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_the_parser_in_python_says_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML without its C library reads every case alike, down to columns and hints."""
    monkeypatch.setattr(source, "_BASE_LOADER", yaml.SafeLoader)

    test_the_result_is_as_written(path)


def _results(text: str) -> set[str]:
    """What a case may say of a configuration; a good one may be explained or not."""
    try:
        checked = check_text(text, environ=_environ(text))
    except ConfigError as error:
        return {render(error.problems)}
    if checked.warnings:
        return {render(checked.warnings, "warning")}
    return {"OK", "\n".join(explain(checked.config))}


def test_there_are_cases() -> None:
    """The cases are found: an empty folder would pass everything."""
    assert len(CASES) >= 100
