"""The compiled build: what is compiled, when it is made anew, and that it is what a suite runs."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.processes import PYTHON_PATH, ROOT

SCRIPT: Final = ROOT / "scripts" / "compiled.py"
EXPECTED: Final = os.environ.get("SLUICE_BUILD", "pure Python")
"""Which build this run of the suite is for; `make test-compiled` says so."""

MODULE: Final = '''\
"""A module to compile."""

NUMBER = 1


def fail() -> int:
    """Fail."""
    raise LookupError(NUMBER)
'''
PYPROJECT: Final = """\
[tool.sluice.compiled]
include = ["*.py"]
exclude = ["__init__.py"]
"""


def listed() -> list[Path]:
    """The modules that pyproject.toml says are compiled, as the script reads it."""
    found = importlib.util.spec_from_file_location("compiled", SCRIPT)
    assert found is not None
    assert found.loader is not None
    script = importlib.util.module_from_spec(found)
    found.loader.exec_module(script)
    return [ROOT / path for path in script.modules(ROOT)]


def _awaits_in_handlers(source: str) -> list[int]:
    """Lines that await while an exception is handled, or may be."""
    waits = ast.Await | ast.AsyncWith | ast.AsyncFor
    return [
        inner.lineno
        for one in ast.walk(ast.parse(source))
        if isinstance(one, ast.Try)
        for block in (*(handler.body for handler in one.handlers), one.finalbody)
        for statement in block
        for inner in ast.walk(statement)
        if isinstance(inner, waits)
    ]


def test_no_compiled_module_awaits_while_it_handles_an_exception() -> None:
    """Mypyc 2.4 then shows that exception to others, and raises those of others."""
    found = {str(path): _awaits_in_handlers(path.read_text()) for path in listed()}
    assert {path: lines for path, lines in found.items() if lines} == {}
    assert _awaits_in_handlers("async def f():\n try: g()\n finally: await h()") == [3]


def test_the_hot_path_is_listed() -> None:
    """What each request runs is compiled."""
    names = {str(path.relative_to(ROOT / "gateway")) for path in listed()}
    hot = {"proxy/exchange.py", "proxy/driver.py", "limiter/decider.py", "routing/table.py"}
    assert hot | {"base/build.py", "stores/memory/store.py"} <= names


def test_the_suite_runs_the_build_that_it_is_for() -> None:
    """Every listed module is loaded compiled, or none."""
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in listed()]
    files = [importlib.import_module(name).__file__ or "" for name in names]
    ending = ".so" if EXPECTED == "compiled" else ".py"
    assert [file for file in files if not file.endswith(ending)] == []


@pytest.mark.parametrize("folder", [ROOT, Path("/")])
def test_processes_of_tests_run_the_same_build(folder: Path) -> None:
    """Wherever they are started."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "--version"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.endswith(f" ({EXPECTED})\n")


def test_the_log_says_which_build_runs(start_gateway: StartGateway) -> None:
    """Its first lines name the version and the build."""
    gateway = start_gateway("routes: {/**: {upstream: http://127.0.0.1:9}}")
    assert f"({EXPECTED})" in gateway.server.stdout


class Tree:
    """A source tree with one module to compile."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.module = root / "gateway" / "one.py"
        self.module.parent.mkdir()
        self.module.with_name("__init__.py").touch()
        self.module.write_text(MODULE)
        (root / "pyproject.toml").write_text(PYPROJECT)
        (root / "requirements").symlink_to(ROOT / "requirements")

    def compile(self, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Ask for the compiled package."""
        return subprocess.run(
            [sys.executable, SCRIPT, "--root", self.root, *options],
            env={**os.environ, "SLUICE_OPT_LEVEL": "0", **env},
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a program on the package, as compiled as it can be."""
        package = self.compile("--require").stdout.strip()
        assert package
        return subprocess.run(
            [sys.executable, "-c", program],
            cwd=self.root.parent,
            env={**os.environ, "PYTHONPATH": package},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A tree of its own; nothing compiled is ever put among its sources."""
    root = tmp_path / "tree"
    root.mkdir()
    yield Tree(root)
    assert not list((root / "gateway").rglob("*.so"))


@pytest.mark.timeout(600)
def test_a_changed_source_takes_effect(tree: Tree) -> None:
    """An old build never hides it; and the source of an old build has its build still."""
    look = "import gateway.one as one; print(one.NUMBER, one.__file__.endswith('.so'))"
    assert tree.run(look).stdout == "1 True\n"
    first = tree.compile().stdout
    tree.module.write_text(MODULE.replace("NUMBER = 1", "NUMBER = 2"))
    assert tree.run(look).stdout == "2 True\n"
    tree.module.write_text(MODULE)
    again = tree.compile()
    assert (again.stdout, again.stderr) == (first, "")


@pytest.mark.timeout(600)
def test_a_traceback_names_file_and_line(tree: Tree) -> None:
    """Of the source, below the folder of the package."""
    said = tree.run("import gateway.one as one; one.fail()").stderr
    assert 'File "gateway/one.py", line 8, in fail\n' in said


@pytest.mark.timeout(600)
def test_what_cannot_be_compiled_runs_as_it_stands(tree: Tree) -> None:
    """One line says so, and why."""
    for env, reason in (
        ({"SLUICE_PURE": "1"}, "SLUICE_PURE is set"),
        ({"CC": "/none/gcc"}, "there is no C compiler (/none/gcc)"),
        ({"CC": "false"}, "compiling failed: "),
    ):
        done = tree.compile(**env)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert f"sluice: running in pure Python: {reason}" in done.stderr
    assert tree.compile("--require", SLUICE_PURE="1").returncode == 1
    tree.module.write_text("NUMBER: int = 'one'\n")
    assert "compiling failed: gateway/one.py:1: error: Incompatible" in tree.compile().stderr


@pytest.mark.timeout(600)
def test_the_wheel_is_compiled(tree: Tree) -> None:
    """It is for this Python and platform, and holds the sources beside what is compiled."""
    text = (ROOT / "pyproject.toml").read_text()
    before, _, rest = text.partition("[tool.sluice.compiled]")
    rest = rest.partition("\n[tool.ruff]")[2]
    (tree.root / "pyproject.toml").write_text(f"{before}{PYPROJECT}\n[tool.ruff]{rest}")
    for name in ("README.md", "LICENSE", "scripts"):
        (tree.root / name).symlink_to(ROOT / name)
    tree.module.with_name("__init__.py").write_text('__version__ = "1"\n')
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=tree.root,
        env={**os.environ, "SLUICE_OPT_LEVEL": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tree.root.glob("dist/*.whl")
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{tag}-{tag}-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition(".cpython")[0] for name in archive.namelist()}
    assert {"gateway/one.py", "gateway/one", "sluice__mypyc"} <= names
