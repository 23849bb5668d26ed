"""Paths of this repository that its files name: settings, scripts, pages and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

_PATH: Final = re.compile(
    r"(?<![\w./-])((?:gateway|tests|docs|scripts|bench|config|examples|requirements)"
    r"/[\w./*{},-]*[\w*}/])"
)

KEPT: Final = (
    *("*.md", "*.toml", "Makefile", "Dockerfile", ".ci/*", "scripts/*", "config/**/*.yaml"),
    *(f"docs/**/*.{kind}" for kind in ("md", "yaml")),
    *(f"{top}/**/*.{kind}" for top in ("gateway", "tests", "bench") for kind in ("py", "md")),
    *(f"gateway/**/*.{kind}" for kind in ("lua", "sql", "proto", "yaml")),
    *(f"examples/**/*.{kind}" for kind in ("md", "py", "sh", "yaml", "toml")),
)
"""Files that may name others."""

PLACEHOLDERS: Final = re.compile(r"\bNAME\b|/a/(test_)?b\.py|^examples/none/|^gateway/one\b")
"""Paths that stand for others, or that a test invents."""

ELSEWHERE: Final = {"tests/node/node_modules", "config/default.yaml"}
"""What `make test` installs, and a file of Smockron's own repository."""


def _text_files() -> Iterator[tuple[str, str]]:
    """Yield each file that may name others, except this one and the changelog (old paths)."""
    found = [path for pattern in KEPT for path in ROOT.glob(pattern) if path.is_file()]
    for path in found:
        if path.name not in {"CHANGELOG.md", Path(__file__).name} and not {
            "node_modules",
            "__pycache__",
        } & set(path.parts):
            yield str(path.relative_to(ROOT)), path.read_text()


def _paths(text: str) -> Iterator[str]:
    """Each path in a text; `a/{b,c}` is two of them."""
    for path in _PATH.findall(text):
        before, brace, rest = path.partition("{")
        inner, _, after = rest.partition("}")
        yield from (before + one + after for one in inner.split(",")) if brace else (path,)


def _is_there(path: str) -> bool:
    """Whether a path leads somewhere; pages may leave out `gateway/` and `tests/`."""
    return any(next(iter((ROOT / top).glob(path)), None) for top in ("", "gateway", "tests"))


def _missing(text: str) -> list[str]:
    named = set(_paths(text)) - ELSEWHERE
    return sorted(one for one in named if not PLACEHOLDERS.search(one) and not _is_there(one))


def test_paths_that_files_name_are_there() -> None:
    """No setting, script, page or comment names a file or folder that has moved or gone."""
    missing = {name: paths for name, text in _text_files() if (paths := _missing(text))}
    assert missing == {}


def test_a_path_that_leads_nowhere_is_seen() -> None:
    """A file that is not there is found, in braces and behind a star as well."""
    assert _missing("gateway/{base,nowhere}/clock.py") == ["gateway/nowhere/clock.py"]
    assert _missing("see tests/nowhere/*.py.") == ["tests/nowhere/*.py"]
    assert _missing("`config/models/policies.py`, docs/library.md#x") == []
