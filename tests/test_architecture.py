"""The house's own rules: arrows point one way, pure rooms stay pure, everything is explained."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent

LAYERS: Final = (
    {"errors", "clock", "tasks", "extras", "unread", "lean", "refusals"},
    {"limits", "protocols", "breaker", "metrics"},
    {"routing", "stores", "balancing", "tls", "editing"},
    {"config", "logs"},
    {"policy", "waiting", "obstacles", "importing", "binding", "arguments"},
    {"consistency"},
    {"answer", "decider"},
    {"holding", "opening"},
    {"proxy", "frontends", "admin"},
    {"app", "demo", "library"},
    {"workers"},
    {"integrations", "cli"},
    {"__main__"},
)
"""Rooms from the bottom up; a room imports from itself and from lower layers only."""

FACE: Final = {"gateway", "gateway.__version__"}
"""What any module may import from above: the package itself, for its version."""

PURE: Final = (
    "gateway.errors",
    "gateway.limits",
    "gateway.protocols",
    "gateway.breaker",
    "gateway.routing",
    "gateway.editing",
    "gateway.importing",
    "gateway.balancing",
    "gateway.answer",
    "gateway.policy",
    "gateway.config.models",
    "gateway.config.source",
    "gateway.config.check",
    "gateway.config.schema",
    "gateway.config.explain",
    "gateway.stores.shared_frames",
    "gateway.stores.throttr_words",
    "gateway.stores.throttr_spending",
    "gateway.tls.names",
    "gateway.tls.peer",
    "gateway.tls.x509",
    "gateway.proxy.proxy_header",
    "gateway.workers.restarts",
)
"""Modules (and all below them) that decide, and neither ask the world nor tell it."""

WORLD: Final = {"asyncio", "socket", "time", "random", "logging", "aiohttp", "redis"}
"""What a pure module does not import."""

MAX_LINES: Final = 450


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES: Final = {_module_name(path): path for path in sorted(ROOT.glob("gateway/**/*.py"))}
TESTS: Final = sorted(ROOT.glob("tests/**/test_*.py"))


@cache
def _imports(source: str) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything imported, inside functions too."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            found += ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
    return tuple(found)


def _is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def _layer(name: str) -> int | None:
    """The layer of a dotted name inside the package, or None if it is in no room."""
    room = name.partition(".")[2].partition(".")[0]
    return next((number for number, rooms in enumerate(LAYERS) if room in rooms), None)


def _upward_imports(module: str, source: str) -> list[str]:
    """Imports of `module` that point up, sideways, or at the package's face."""
    if module == "gateway":
        return []
    own_layer = _layer(module)
    assert own_layer is not None, f"give the room of {module} a layer in LAYERS"
    found = []
    for line, name in _imports(source):
        if not _is_in(name, "gateway") or name in FACE:
            continue
        same_room = name.split(".")[1:2] == module.split(".")[1:2]
        layer = _layer(name)
        if not same_room and (layer is None or layer >= own_layer):
            found.append(f"{module}, line {line}: must not import {name}")
    return found


def _world_imports(module: str, source: str) -> list[str]:
    """Imports of a pure `module` that reach out into the world."""
    if not any(_is_in(module, pure) for pure in PURE):
        return []
    return [
        f"{module}, line {line}: a pure module must not import {name}"
        for line, name in _imports(source)
        if name.split(".")[0] in WORLD
    ]


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_one_way(module: str) -> None:
    """A room imports from itself and from lower layers only."""
    assert _upward_imports(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize("module", MODULES)
def test_pure_modules_stay_pure(module: str) -> None:
    """What decides knows no loop, socket, clock, dice, log or server library."""
    assert _world_imports(module, MODULES[module].read_text()) == []


def test_the_checks_bite() -> None:
    """An arrow up, an arrow sideways and a clock in a pure room are each seen."""
    assert _upward_imports("gateway.limits.rate", "from gateway.decider import Decider")
    assert _upward_imports("gateway.proxy.server", "import gateway.admin.api")
    assert _upward_imports("gateway.errors", "def f():\n    from gateway.clock import wall_us")
    assert _upward_imports("gateway.clock", "from gateway import Limiter")
    assert _world_imports("gateway.limits.rate", "from time import monotonic")
    assert not _upward_imports("gateway.decider", "from gateway.limits.rate import Limit")
    assert not _world_imports("gateway.decider", "import asyncio")


def test_only_the_composition_root_and_the_command_line_load_configurations() -> None:
    """Files and the environment are read in one place, and its result is handed down."""
    users = {
        module
        for module, path in MODULES.items()
        for _, name in _imports(path.read_text())
        if _is_in(name, "gateway.config.load") and not _is_in(module, "gateway.config")
    }
    assert users <= {"gateway.app", "gateway.cli", "gateway.library.limiter"}


def test_the_proxy_names_no_store_and_stores_know_no_http() -> None:
    """What forwards asks the decider; what counts has never heard of a request."""
    for module, path in MODULES.items():
        names = {name for _, name in _imports(path.read_text())}
        if _is_in(module, "gateway.proxy"):
            assert not {name for name in names if _is_in(name, "gateway.stores")}, module
        if _is_in(module, "gateway.stores"):
            assert not {name for name in names if name.split(".")[0] in {"aiohttp", "http"}}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_for(module: str) -> None:
    """Every module and package begins with a docstring, and fits into a head."""
    source = MODULES[module].read_text()
    assert ast.get_docstring(ast.parse(source)), f"{module} has no docstring"
    assert source.count("\n") <= MAX_LINES, f"{module} has two reasons to exist: split it"


@pytest.mark.parametrize("path", TESTS, ids=[str(path.relative_to(ROOT)) for path in TESTS])
def test_every_test_states_its_behaviour(path: Path) -> None:
    """The docstring of a test is the sentence that it proves."""
    silent = [
        f"line {node.lineno}: {node.name}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
