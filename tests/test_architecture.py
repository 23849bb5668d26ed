"""The house's own rules: arrows point one way, pure rooms stay pure, everything is explained."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.covered import COVERED

ROOT: Final = Path(__file__).parent.parent

LAYERS: Final[tuple[Mapping[str, str], ...]] = (
    {
        "base": "errors, time, background tasks, circuit breakers, install hints",
        "board": "numbers that the workers of one gateway share",
    },
    {
        "limits": "algorithms as functions of state and time, and the notation of limits (pure)",
        "observe.metrics": "counters, and their form for Prometheus",
        "net.unsent": "bytes written to a client but not yet acknowledged",
        "systems.grpc.protobuf": "messages of Protocol Buffers",
        "proxy.http1": "HTTP/1 as both sides of the proxy read it (pure)",
        "proxy.http2": "HTTP/2 as both sides of the proxy read it (no I/O)",
    },
    {
        "systems.*.codec*": "protocols of other systems: bytes to values and back (pure)",
        "systems.*.messages": "the same for protocols based on gRPC",
        "systems.*.relay_codec": "messages between Smockron masters",
        "systems.*.tree": "which rule applies to a descriptor (pure)",
        "systems.ratio.rules": "which rule applies to a request (pure)",
        "systems.throttr.memory_v*": "Throttr requests on records in memory",
        "systems.throttr.records": "Throttr's records",
        "stores.base": "what every store is to the limiter",
        "stores.capabilities": "what a kind of store can do",
        "stores.urls": "URLs of stores, taken apart (pure)",
        "stores.pipelining": "requests and answers in order on one connection",
        "stores.reconnecting": "connections that are made again when they are lost",
        "stores.settings": "what stores that gateways share are made with",
        "stores.reports": "what gatekeepers of Smockron report, and who keeps it",
        "stores.tls_options": "how certificates of stores' servers are checked",
    },
    {
        "routing": "the route, client and keys of a request (pure)",
        "http.editing": "changes to messages (pure)",
        "net.tls": "certificates, contexts, handshakes",
        "proxy.upstream.balancing": "which target is next, and which are left out (pure)",
        "stores.memory": "counts in this process",
        "stores.heartbeat": "how gateways that share a store count each other",
        "stores.deadline": "a decision in time, or none",
        "stores.shards": "a breaker for each server of a store",
        "systems.*.store_url": "URLs of stores on servers of other systems (pure)",
    },
    {
        "stores.redis": "counts in Redis and Valkey",
        "stores.mysql": "counts in MySQL and MariaDB",
        "stores.shared": "counts that workers of one gateway share",
        "stores.scripted": "a store for tests",
        "stores.follower": "a second store that follows the first",
        "tokens": "signed tokens of clients: keys, signatures, claims",
        "proxy.head": "header fields on their way to an upstream (pure)",
        "observe.logs": "the access log, and lines about the gateway itself",
    },
    {
        "stores.kinds": "the list of stores, by the schemes of their URLs",
        "stores.migrating": "counts that move from one store to another",
    },
    {"stores": "where counts live: from a URL to its store, and what others write stores with"},
    {
        "config.values": "types of single values: addresses, durations, sizes, URLs of stores",
        "limiter": "one decision: plans, batches, deadlines, failures, leases, queues",
    },
    {
        "systems.*.config": "the configuration of a listener for another system",
        "net": "sockets to listen on, and errors at start",
        "http": "the gateway's own responses (pure)",
    },
    {"config.models": "everything that can be configured: validated, frozen models"},
    {
        "systems.*.capabilities": "which policies another system's servers can keep",
    },
    {"config.reading": "reads files into nodes with positions"},
    {"config.explaining.limits": "limits in sentences"},
    {"systems.*.explaining": "listeners for other systems in sentences"},
    {"config.checking": "finds mistakes in a configuration, and suggests fixes"},
    {
        "config.explaining": "a configuration in sentences, and as JSON Schema",
        "systems.ratio.environment": "the environment variables of ratio's own server",
        "proxy.client": "connections from clients, and the handler that serves their requests",
        "proxy.upstream": "connections to upstreams, and which target is used",
    },
    {
        "importing": "converts configurations of other systems (pure)",
        "proxy": "the path of a request: its route and limits, its attempts, its response",
        "systems": "other rate limiting systems, one folder each: listener and store",
        "admin": "health, readiness and metrics of a running gateway",
    },
    {"wiring": "the composition root: builds a running gateway from a configuration"},
    {"library": "the limiter without the gateway"},
    {"workers": "a gateway of several processes"},
    {
        "integrations": "middlewares for aiohttp and ASGI",
        "command": "the command line: the only place that prints or exits",
    },
)
"""Rooms from the bottom up, and what lives there; a module is in the room that names it best."""

INNER: Final[Mapping[str, tuple[str, ...]]] = {
    "gateway.limiter": (
        "admissions plan reports returns local.eventual_state local.generations local.unreported",
        "outcome waiting_room local.eventual local.leases",
        "parts fallback tiers trial local.leasing",
        "backfill local.reporting",
        "local.local_decider",
        "decider",
        "costs lease_keeper",
    ),
    "gateway.config.values": (
        "base findings header_names hosts redaction shorthand_place units words",
        "address paths written",
        "store_parts types",
        "bounds lines places store_url",
    ),
    "gateway.config.models": (
        "changes consistency cors direct_responses geoip listeners lists throttlex",
        "shorthand_listeners",
        "answers balancing conditions frontends retry tokens",
        "shorthand tiers",
        "costs",
        "policies",
        "methods upstreams",
        "routes service",
        "defaults",
        "gateway",
        "capabilities library",
    ),
    "gateway.config.reading": ("nodes substitute syntax", "merge node_findings source"),
    "gateway.config.checking": (
        "capabilities foreign_names key_checks lints throttlex_checks",
        "messages",
        "condition_checks cross list_checks",
        "check",
        "load",
    ),
    "gateway.config.explaining": (
        "changes consistency limits notation render retry schema_listeners store tls upstreams",
        "access costs tokens trials",
        "frontends meaning same_routes schema",
        "explain options",
        "differences",
    ),
}
"""Layers within a room, from the bottom up; each module is on one of them."""

FACE: Final = {"gateway", "gateway.__version__"}
"""What any module may import from above: the package itself, for its version."""

PURE: Final = (
    "gateway.base.errors",
    "gateway.limits",
    "gateway.systems.*.codec*",
    "gateway.systems.*.messages",
    "gateway.systems.*.tree",
    "gateway.systems.*.relay_codec",
    "gateway.systems.ratio.rules",
    "gateway.systems.throttr.memory_v*",
    "gateway.systems.throttr.records",
    "gateway.systems.grpc.protobuf",
    "gateway.base.breaker",
    "gateway.board.table",
    "gateway.routing",
    "gateway.http.editing",
    "gateway.importing",
    "gateway.proxy.upstream.balancing",
    "gateway.proxy.head",
    "gateway.proxy.http1",
    "gateway.http.answer",
    "gateway.limiter.plan",
    "gateway.wiring.policies",
    "gateway.config.models.gateway",
    "gateway.config.reading.source",
    "gateway.config.checking.check",
    "gateway.config.explaining.schema",
    "gateway.config.explaining.explain",
    "gateway.config.explaining.differences",
    "gateway.config.explaining.options",
    "gateway.stores.shared.frames",
    "gateway.stores.urls",
    "gateway.stores.*.url",
    "gateway.systems.*.store_url",
    "gateway.systems.throttr.spending",
    "gateway.net.inherited",
    "gateway.net.tls.names",
    "gateway.net.tls.peer",
    "gateway.net.tls.certificate",
    "gateway.proxy.client.proxy_header",
    "gateway.workers.restarts",
    "gateway.workers.rollout",
    "gateway.workers.watchdog",
)
"""Modules (and all below them) that decide, and neither ask the world nor tell it."""

WORLD: Final = {"asyncio", "socket", "time", "random", "logging", "aiohttp", "redis"}
"""What a pure module does not import."""

FACES: Final = {"gateway", "gateway.__main__", "gateway.config", "gateway.observe"}
"""Packages that only say what is in them."""

TWICE: Final = {"Decision"}
"""Class names with two meanings: what an algorithm decides, and what the library says of it."""

ROOMS: Final = "a package may be a room of its own, below: LAYERS"

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


def _is(name: str, pattern: str) -> bool:
    """Whether a dotted name is what a pattern with `*` names, word by word."""
    words, parts = name.split("."), pattern.split(".")
    return len(words) == len(parts) and all(map(fnmatchcase, words, parts))


def _fits(name: str, pattern: str) -> bool:
    """Whether a dotted name is in a room, or in one that a pattern with `*` names."""
    words, parts = name.split("."), pattern.split(".")
    return len(words) >= len(parts) and all(map(fnmatchcase, words, parts))


@cache
def _place(name: str) -> tuple[int, str] | None:
    """The layer and the room of a dotted name, by the pattern that names it best."""
    bare = name.removeprefix("gateway.")
    found = [
        (len(room.split(".")), number, room)
        for number, rooms in enumerate(LAYERS)
        for room in rooms
        if _fits(bare, room)
    ]
    return max(found)[1:] if found else None


def _house(name: str) -> str:
    """What may import from itself as it likes: a room, or the folder of a store or a system."""
    parts = name.split(".")
    if parts[1:2] == ["proxy"]:
        place = _place(name)
        return place[1] if place is not None else name
    return ".".join(parts[: 3 if parts[1:2] in (["systems"], ["config"], ["stores"]) else 2])


def _upward_imports(module: str, source: str) -> list[str]:
    """Imports of `module` that point up, sideways, or at the package's face."""
    if module in FACES:
        return []
    own = _place(module)
    assert own is not None, f"give the room of {module} a layer in LAYERS"
    found = []
    for line, name in _imports(source):
        if not _is_in(name, "gateway") or name in FACE or _house(name) == _house(module):
            continue
        place = _place(name)
        if place is None or (place[1] != own[1] and place[0] >= own[0]):
            found.append(f"{module}, line {line}: must not import {name} ({ROOMS})")
    return found


def _world_imports(module: str, source: str) -> list[str]:
    """Imports of a pure `module` that reach out into the world."""
    if not any(_fits(module, pure) for pure in PURE):
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


def _inner_floors(room: str) -> dict[str, int]:
    """The layer of each module within a room."""
    return {
        f"{room}.{name}": number
        for number, names in enumerate(INNER[room])
        for name in names.split()
    }


def _inner_upward(room: str, module: str, targets: Iterable[str]) -> list[str]:
    """Imports of a module that do not lead to a lower layer of its own room."""
    floors = _inner_floors(room)
    return [one for one in targets if one in floors and floors[one] >= floors[module]]


@pytest.mark.parametrize("room", INNER)
def test_arrows_within_a_room_point_one_way(room: str) -> None:
    """Each module is on one layer of its room, and imports from lower ones only."""
    listed = " ".join(INNER[room]).split()
    there = {name for name, path in MODULES.items() if _is_in(name, room)}
    there = {name for name in there if MODULES[name].name != "__init__.py"}
    places = {f"{room}.{name}" for name in listed}
    assert places == there, "INNER gives each file of the room a place, and names no other"
    graph = _graph()
    wrong = {module: _inner_upward(room, module, graph[module]) for module in there}
    assert {module: targets for module, targets in wrong.items() if targets} == {}


@pytest.mark.parametrize("module", MODULES)
def test_pure_modules_stay_pure(module: str) -> None:
    """What decides knows no loop, socket, clock, dice, log or server library."""
    assert _world_imports(module, MODULES[module].read_text()) == []


def test_the_checks_bite() -> None:
    """An arrow up, an arrow sideways and a clock in a pure room are each seen."""
    assert _upward_imports("gateway.limits.rate", "from gateway.limiter.decider import Decider")
    assert _upward_imports("gateway.proxy.server", "import gateway.admin.api")
    pool = "from gateway.proxy.upstream.pool import TargetPool"
    assert _upward_imports("gateway.proxy.client.connection", pool)
    assert _upward_imports("gateway.proxy.upstream.balancing.checks", pool)
    assert _upward_imports("gateway.proxy.upstream.pool", "import gateway.proxy.client.handler")
    assert _upward_imports("gateway.proxy.client.handler", "import gateway.proxy.exchange")
    assert _upward_imports(
        "gateway.base.errors", "def f():\n    from gateway.limits.rate import Limit"
    )
    assert _upward_imports("gateway.base.clock", "from gateway import Limiter")
    assert _world_imports("gateway.limits.rate", "from time import monotonic")
    assert not _upward_imports("gateway.limiter.decider", "from gateway.limits.rate import Limit")
    assert not _world_imports("gateway.limiter.decider", "import asyncio")
    assert _place("gateway.systems.throttr.codec_v5") == (2, "systems.*.codec*")
    assert _place("gateway.net.tls.files") == (3, "net.tls")
    assert _circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == {"b", "c"}
    decider, plan = "gateway.limiter.decider", "gateway.limiter.plan"
    assert _inner_upward("gateway.limiter", plan, {decider})
    assert not _inner_upward("gateway.limiter", decider, {plan})
    assert "gateway.proxy.server" in _leads_to("tests.e2e.test_limits")
    assert "gateway.proxy.server" not in _leads_to("tests.limits.test_notation")


@cache
def _graph() -> dict[str, set[str]]:
    """Which module imports which, for types too."""
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        names = {name for _, name in _imports(path.read_text())}
        targets = {name if name in MODULES else name.rpartition(".")[0] for name in names}
        graph[module] = {one for one in targets & set(MODULES) if one not in {module, "gateway"}}
    return graph


def _circles(graph: Mapping[str, set[str]]) -> set[str]:
    """The modules from which a way of imports leads back to themselves."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for name in graph[left.pop()] - seen:
                seen.add(name)
                left.append(name)
        return seen

    return {module for module in graph if module in reached(module)}


def test_no_circles() -> None:
    """No file imports, even for types only, what leads back to it."""
    assert _circles(_graph()) == set()


def _classes() -> Iterator[ast.ClassDef]:
    for path in MODULES.values():
        yield from (
            one for one in ast.parse(path.read_text()).body if isinstance(one, ast.ClassDef)
        )


def test_a_class_name_means_one_thing() -> None:
    """No class has the name of another, with or without an underscore before it."""
    times = Counter(one.name.strip("_") for one in _classes())
    assert {name for name, number in times.items() if number > 1} == TWICE


def _tuples_with_a_star(source: str) -> list[str]:
    """Calls that spell out a tuple of arguments only to unpack it."""
    return [
        f"line {call.lineno}: {ast.unparse(call)}"
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        for argument in call.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple | ast.List)
    ]


@pytest.mark.parametrize("module", MODULES)
def test_arguments_are_not_unpacked_from_a_tuple_made_for_it(module: str) -> None:
    """Many arguments are keywords or a record."""
    assert _tuples_with_a_star(MODULES[module].read_text()) == []


def _slots_without_a_value(of: ast.ClassDef) -> set[object]:
    """Slots that neither the constructor sets, nor a method that it calls on the new object."""
    methods = {one.name: one for one in of.body if isinstance(one, ast.FunctionDef)}
    slots: set[object] = set()
    for one in of.body:
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__slots__":
            slots |= {each.value for each in ast.walk(one.value) if isinstance(each, ast.Constant)}
    # Python sets this one.
    slots.discard("__weakref__")
    left = ["__init__"] if slots and "__init__" in methods else []
    seen: set[str] = set()
    while left:
        name = left.pop()
        seen.add(name)
        for node in ast.walk(methods[name]):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
                if isinstance(node.ctx, ast.Store):
                    slots.discard(node.attr)
                elif node.attr in methods and node.attr not in seen:
                    left.append(node.attr)
    return slots if seen else set()


def test_constructors_set_every_slot() -> None:
    """No attribute of a new object is missing until a method happens to set it."""
    found = {one.name: slots for one in _classes() if (slots := _slots_without_a_value(one))}
    assert found == {}


def test_the_checks_of_names_and_slots_bite() -> None:
    """A tuple with a star and a slot that is set too late are each seen."""
    assert _tuples_with_a_star("call(*(1, 2), key=3)")
    assert not _tuples_with_a_star("call(*numbers)")
    late = "class A:\n __slots__ = ('a',)\n def __init__(self): {}\n def start(self): self.a = 1"
    (bad,) = ast.parse(late.format("pass")).body
    (good,) = ast.parse(late.format("self.start()")).body
    assert isinstance(bad, ast.ClassDef)
    assert isinstance(good, ast.ClassDef)
    assert _slots_without_a_value(bad) == {"a"}
    assert _slots_without_a_value(good) == set()


STARTS: Final = {"tests.processes": "gateway.__main__"}
"""What a helper of the tests runs as a process of its own."""

_REFERENCE: Final = re.compile(r'"(gateway[.\w]+):\w+"')
"""A module that is imported by its name, once it is needed."""


@cache
def _reached(path: Path) -> frozenset[str]:
    """What a file imports, now or once it is needed."""
    source = path.read_text()
    names = {one for _, one in _imports(source)} | set(_REFERENCE.findall(source))
    return frozenset(names | {one.rpartition(".")[0] for one in names})


@cache
def _leads_to(name: str) -> frozenset[str]:
    """All modules that an import of this one leads to, of the package and of the tests."""
    seen: set[str] = set()
    left = [name]
    while left:
        here = left.pop()
        path = MODULES.get(here) or ROOT / (here.replace(".", "/") + ".py")
        if here in seen or not path.is_file():
            continue
        seen.add(here)
        left += _reached(path)
        left += [STARTS[here]] if here in STARTS else []
    return frozenset(seen)


def _mirror(path: Path) -> Path:
    """The test file that is named after a module."""
    below = path.relative_to(ROOT / "gateway")
    return ROOT / "tests" / below.with_name(f"test_{below.name}")


def _is_only_a_face(path: Path) -> bool:
    """Whether a module only says where others are, and what is in them."""
    plain = ast.Expr | ast.Import | ast.ImportFrom | ast.Assign
    return all(isinstance(node, plain) for node in ast.parse(path.read_text()).body)


@cache
def _covered_by() -> Mapping[str, tuple[str, str]]:
    """For each module without a test file of its own name, the row for it; empty if there is none.

    Of several rows it is the one that names it best.
    """
    rows = [(one, file) for file, names in COVERED.items() for one in names.split()]
    found: dict[str, tuple[str, str]] = {}
    for module, path in MODULES.items():
        if not _mirror(path).is_file() and not _is_only_a_face(path):
            name = ".".join(path.relative_to(ROOT / "gateway").with_suffix("").parts)
            fitting = [row for row in rows if _is(name, row[0])]
            found[module] = min(fitting, key=lambda row: row[0].count("*"), default=("", ""))
    return found


def test_every_module_has_a_test() -> None:
    """It has the module's name, or the table of `tests/covered.py` names it."""
    without = [module for module, row in _covered_by().items() if row == ("", "")]
    assert not without, "name a test file after each, or give it a row in tests/covered.py"


def test_no_name_in_the_table_of_tests_is_left_over() -> None:
    """Each is of a module without a test file of its own name."""
    used = {one for one, _ in _covered_by().values() if one}
    assert set(" ".join(COVERED.values()).split()) == used


@pytest.mark.parametrize("file", COVERED)
def test_what_covers_a_module_leads_to_it(file: str) -> None:
    """A test file that covers modules imports them, or starts a process that does."""
    path = ROOT / "tests" / file
    assert path.is_file()
    found = _leads_to(".".join(path.relative_to(ROOT).with_suffix("").parts))
    covered = {module for module, (_, row) in _covered_by().items() if row == file}
    assert covered - found == set()


def test_a_second_has_its_microseconds_in_one_place() -> None:
    """`US` is defined by the clock, and nowhere else."""
    definers = {
        module
        for module, path in MODULES.items()
        for line in path.read_text().splitlines()
        if line.startswith(("US:", "US =", "_US:", "_US ="))
    }
    assert definers == {"gateway.base.clock"}


ADMIN_HANDLER: Final = {"gateway.admin.api"}
"""Who may have a `RequestHandler` of its own: the admin listener is aiohttp's server, whose public
`handle_error` says what is told of an error. What serves clients has parts of aiohttp instead."""

NAMED_TUPLE: Final = {"_asdict", "_fields", "_make", "_replace"}
"""What every named tuple offers. (aiohttp's messages only look like one.)"""


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _is_foreign(node: ast.Attribute) -> bool:
    """Whether a private name is looked up on something that may be aiohttp's."""
    value = ast.unparse(node.value)
    if node.attr in NAMED_TUPLE:
        return value.rpartition(".")[2] == "message"
    return _private(node.attr) and value not in {"self", "cls"}


def _inside_aiohttp(source: str) -> list[str]:
    """Lines that reach for what aiohttp does not offer, in a module that imports it."""
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aiohttp"
        for alias in node.names
    }
    uses_it = any(name.split(".")[0] == "aiohttp" for _, name in _imports(source))
    found = [
        f"line {line}: {name}"
        for line, name in _imports(source)
        if name.split(".")[0] == "aiohttp" and any(map(_private, name.split(".")))
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and uses_it and _is_foreign(node):
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ClassDef):
            for base in map(ast.unparse, node.bases):
                found += _of_base(node, imported.get(base, base))
    return found


def _of_base(node: ast.ClassDef, base: str) -> list[str]:
    """What a class takes over from a base of aiohttp's that is not its to use."""
    if not base.startswith("aiohttp."):
        return []
    module, _, name = base.rpartition(".")
    hidden = set(filter(_private, _names_in(getattr(importlib.import_module(module), name))))
    return [
        f"line {each.lineno}: {ast.unparse(each)}"
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and each.attr in hidden
    ]


def _names_in(base: type) -> set[str]:
    """Every name that a class or one of its bases has, or gives its objects."""
    given = {
        each.attr
        for one in base.__mro__[:-1]
        for each in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(one))))
        if isinstance(each, ast.Attribute)
    }
    return given | set(dir(base))


@pytest.mark.parametrize("module", MODULES)
def test_aiohttp_is_used_by_its_public_names(module: str) -> None:
    """No private name of aiohttp's is used anywhere."""
    assert _inside_aiohttp(MODULES[module].read_text()) == []


def test_nothing_that_serves_clients_is_a_request_handler() -> None:
    """A connection has aiohttp's parser, streams and flow control as parts, not as a base."""
    heirs = {
        module
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        if any(ast.unparse(base).endswith("RequestHandler") for base in node.bases)
    }
    assert heirs == ADMIN_HANDLER


def test_the_check_for_private_names_bites() -> None:
    """A private name is seen in an import, behind an object, and in a class of aiohttp's."""
    assert _inside_aiohttp("from aiohttp.helpers import _SENTINEL")
    assert _inside_aiohttp("import aiohttp._http_parser")
    assert _inside_aiohttp("from aiohttp import web\nmessage._replace(method=1)")
    assert _inside_aiohttp(
        "from aiohttp.web_server import Server\n"
        "class Own(Server):\n    def run(self):\n        self._connections.clear()"
    )
    assert not _inside_aiohttp(
        "from aiohttp.web_server import Server\n"
        "class Own(Server):\n    def run(self):\n        self._oldest = self.connections"
    )


CLOCKS: Final = {"gateway.base.clock", "gateway.observe.logs.escape"}
"""Who knows `time`: the clock, and who writes a time as text. Timers are left to the event loop."""


def test_clocks_are_read_in_one_place() -> None:
    """Everything else is given the time."""
    readers = {
        module
        for module, path in MODULES.items()
        if any(name.split(".")[0] == "time" for _, name in _imports(path.read_text()))
    }
    assert readers == CLOCKS


def test_groups_are_not_repeated_possessively() -> None:
    """Before Python 3.11.5, such a group keeps what its last, failed attempt has consumed."""
    found = [
        module
        for module, path in MODULES.items()
        if re.search(r"\)(?:[*+?]|\{[^}]*\})\+(?!,)", path.read_text())
    ]
    assert found == []


def table_of_rooms() -> str:
    """The table of rooms in `docs/architecture.md`."""
    lines = ["| layer | room | what lives there |", "| --- | --- | --- |"]
    for number in reversed(range(len(LAYERS))):
        for room, what in LAYERS[number].items():
            lines.append(f"| {number} | `{room}` | {what} |")
    return "\n".join(lines)


def test_the_table_of_rooms_is_the_one_that_is_kept() -> None:
    """The page on architecture shows the rooms that are tested here."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert table_of_rooms() in page, f"put this table there:\n{table_of_rooms()}"


def test_files_that_the_page_names_are_there() -> None:
    """A reader who follows a request through the page finds each file, by its name."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([a-z0-9_/]+\.(?:py|lua))", page))
    there = {str(path.relative_to(ROOT)) for path in ROOT.glob("gateway/**/*.*")}
    there |= {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/*.py")}
    assert len(named) > 40
    missing = {name for name in named if not any(f"/{one}".endswith(f"/{name}") for one in there)}
    assert missing == set()


def test_nothing_lies_loose() -> None:
    """The package holds rooms, its face and its entry point."""
    assert {path.name for path in ROOT.glob("gateway/*.py")} == {"__init__.py", "__main__.py"}


def test_only_the_composition_root_and_the_command_line_load_configurations() -> None:
    """Files and the environment are read in one place, and its result is handed down."""
    users = {
        module
        for module, path in MODULES.items()
        for _, name in _imports(path.read_text())
        if _is_in(name, "gateway.config.checking.load") and not _is_in(module, "gateway.config")
    }
    commands = {f"gateway.command.{one}" for one in ("asking", "cli", "comparing", "explaining")}
    assert users <= {*commands, "gateway.library.limiter"}


MODELED: Final = (
    *("gateway.config", "gateway.command", "gateway.library", "gateway.wiring", "gateway.workers"),
    *("gateway.proxy.server", "gateway.proxy.upstream", "gateway.systems"),
)
"""Rooms that read models. A system owns its configuration. The server and the upstreams keep one
frozen model each: a record of their own would have the same fields once more."""


def test_checked_models_become_objects_in_one_place() -> None:
    """Running objects get plain values, except in rooms that still read models."""
    readers = {
        module
        for module, path in MODULES.items()
        for _, name in _imports(path.read_text())
        if _is_in(name, "gateway.config.models")
    }
    assert [one for one in readers if not any(_is_in(one, room) for room in MODELED)] == []
    assert [room for room in MODELED if not any(_is_in(one, room) for one in readers)] == []


def test_the_proxy_names_no_store_and_stores_know_no_http() -> None:
    """The proxy asks the decider; stores have no requests."""
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
