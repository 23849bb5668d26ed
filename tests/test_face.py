"""What programs import of the package stays where it is, or goes on by its old name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from gateway.base.moved import MOVED
from tests.processes import ROOT

FACE: Final = {
    "gateway": {"ConfigError", "Decision", "LimitExceeded", "Limiter", "Policy"},
    "gateway.integrations.aiohttp": {"setup"},
    "gateway.integrations.asgi": {"LimitMiddleware"},
    "gateway.stores.extending": {
        *("NEVER", "Ask", "Clock", "Decision", "Limit", "StoreError", "StoreUnavailable"),
        *("Verdict", "combine", "wall_us"),
        *("StoreUrl", "StoreUrlError", "UrlParts", "UrlRules", "check_options", "kept_in"),
        *("read_parts", "any_text", "whole_number", "one_of"),
    },
}
"""What the documentation and the examples import, by module."""

OLD: Final = {
    "gateway.clock": {"Clock", "ManualClock", "monotonic_us", "wall_us"},
    "gateway.errors": {"ConfigError", "StoreError", "StoreReplyError", "StoreTimeout"},
    "gateway.limits.decision": {"NEVER", "Decision", "Verdict", "combine"},
    "gateway.limits.rate": {"Limit"},
    "gateway.stores.base": {"Ask", "Store"},
    "gateway.stores.scripted": {"ScriptedStore"},
}
"""What those of earlier versions did."""

PAGES: Final = sorted({*ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.py"), ROOT / "README.md"})


@pytest.mark.parametrize("page", PAGES, ids=[path.name for path in PAGES])
def test_pages_import_what_is_promised(page: Path) -> None:
    """Nothing else of the package is shown to users."""
    text = page.read_text()
    found = re.findall(r"^\s*from (gateway[\w.]*) import (\([^)]*\)|.+)$", text, re.MULTILINE)
    for module, names in found:
        assert set(re.findall(r"\w+", names)) <= FACE[module]


def _run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", [*FACE, *OLD])
def test_names_are_there(module: str) -> None:
    """By their modules of today, and by those of yesterday."""
    names = ", ".join(sorted({**FACE, **OLD}[module]))
    done = _run(f"from {module} import {names}", "-W", "ignore::DeprecationWarning")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", MOVED)
def test_old_modules_are_warned_of(module: str) -> None:
    """The warning has the new name; a class is the same under both."""
    done = _run(f"import {module}", "-W", "error::DeprecationWarning")
    assert done.returncode == 1
    assert f"{module} has been renamed to {MOVED[module]}" in done.stderr
    same = "import gateway.errors as old, gateway.base.errors as new; "
    assert _run(f"{same}assert old.ConfigError is new.ConfigError").returncode == 0
