"""What a process of the command line imports, and what it leaves out, as the interpreter tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.processes import ROOT, ServerProcess, answers, free_port

HEAVY: Final = ("pydantic", "aiohttp", "yaml", "asyncio")
"""What a command needs only if it reads a configuration, or serves."""


def _python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _imported(told: str) -> set[str]:
    """The modules that `-X importtime` has told of."""
    return {line.rpartition("|")[2].strip() for line in told.splitlines() if "|" in line}


def test_a_gateway_does_without_the_client_of_aiohttp(tmp_path: Path) -> None:
    """It serves with aiohttp's parser and server, and has imported none of its client."""
    port, admin = free_port(), free_port()
    (tmp_path / "sluice.yaml").write_text(
        f"listen: 127.0.0.1:{port}\nadmin: {{ listen: 127.0.0.1:{admin} }}\n"
        "routes: { /: { respond: { status: 200 } } }\n"
    )
    gateway = ServerProcess(
        "gateway",
        [sys.executable, "-X", "importtime", "-m", "gateway", "run", "sluice.yaml"],
        tmp_path,
        lambda: answers(admin, "/readyz"),
        {"PYTHONPATH": str(ROOT)},
    )
    try:
        assert answers(port)
    finally:
        gateway.stop()
    imported = _imported(gateway.stderr)
    assert {"aiohttp.web_server", "aiohttp.web_protocol"} <= imported
    assert not {"aiohttp.client", "aiohttp.connector", "aiohttp.tracing"} & imported


def test_commands_that_read_nothing_import_nothing_heavy() -> None:
    """`--help` is there at once, and so is `healthcheck`, which containers run all the time."""
    helped = _python("-X", "importtime", "-m", "gateway", "--help")
    assert helped.returncode == 0
    asked = _python(
        *("-X", "importtime", "-m", "gateway", "healthcheck"),
        *("--admin", f"127.0.0.1:{free_port()}"),
    )
    assert "no answer" in asked.stderr
    for done in (helped, asked):
        assert "gateway.command.cli" in _imported(done.stderr)
        assert not set(HEAVY) & _imported(done.stderr)


def test_a_limiter_imports_no_server_and_no_prometheus() -> None:
    """A program that only limits does without what only a gateway shows."""
    done = _python(
        "-c",
        "import sys\n"
        "from gateway import Limiter\n"
        "print(sorted({'aiohttp', 'prometheus_client', 'redis'} & set(sys.modules)))\n",
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_who_needs_the_client_has_it() -> None:
    """A store of another distribution may use all of aiohttp; what is there already stays."""
    done = _python(
        "-c",
        "import sys\n"
        "from gateway.command.lean import import_on_demand\n"
        "import_on_demand('aiohttp')\n"
        "from aiohttp import http, http_parser\n"
        "from aiohttp.web_protocol import RequestHandler\n"
        "print('aiohttp.client' in sys.modules)\n"
        "import aiohttp\n"
        "from aiohttp import ClientSession, web\n"
        "print(aiohttp.ClientSession is ClientSession, web.RequestHandler is RequestHandler)\n"
        "print(http.SERVER_SOFTWARE.endswith(f'aiohttp/{aiohttp.__version__}'))\n"
        "print(hasattr(aiohttp, 'Nonsense'), aiohttp.http_parser is http_parser)\n",
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["False", "True", "True", "True", "False", "True"]


def test_who_needs_all_of_redis_has_it() -> None:
    """Likewise of a package in a package, whichever is asked first."""
    for first, second in (("redis", "redis.asyncio"), ("redis.asyncio", "redis")):
        done = _python(
            "-c",
            "import sys\n"
            "from gateway.command.lean import import_on_demand\n"
            "import_on_demand('redis', 'redis.asyncio')\n"
            "from redis.asyncio.connection import Connection\n"
            "print('redis.client' in sys.modules)\n"
            f"from {first} import Redis\n"
            f"from {second} import Redis as Other\n"
            "import redis\n"
            "print(redis.asyncio.Connection is Connection)\n"
            f"print({first}.Redis is Redis, {second}.Redis is Other, Other is not Redis)\n",
        )
        assert done.stderr == ""
        assert done.stdout.split() == ["False", "True", "True", "True", "True"]


def test_threads_that_ask_at_once_all_have_it() -> None:
    """None finds half a package; and what a package in a package lacks, it lacks as others do."""
    done = _python(
        "-c",
        "import sys, threading\n"
        "from gateway.command.lean import import_on_demand\n"
        "import_on_demand('redis', 'redis.asyncio')\n"
        "import redis, redis.asyncio\n"
        "found, together = [], threading.Barrier(8)\n"
        "def ask():\n"
        "    together.wait()\n"
        "    found.append(hasattr(redis, 'Redis'))\n"
        "asking = [threading.Thread(target=ask) for _ in range(8)]\n"
        "for one in asking: one.start()\n"
        "for one in asking: one.join()\n"
        "print(found.count(True), hasattr(redis.asyncio, '__version__'))\n",
    )
    assert (done.stdout.split(), done.stderr) == (["8", "False"], "")


def test_what_was_imported_already_is_left_as_it_is() -> None:
    """A program that has aiohttp keeps it."""
    done = _python(
        "-c",
        "import aiohttp, sys\n"
        "from gateway.command.lean import import_on_demand\n"
        "import_on_demand('aiohttp')\n"
        "print(sys.modules['aiohttp'] is aiohttp)\n",
    )
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_imports_for_good_are_no_garbage_and_later_objects_are() -> None:
    """Collections go on afterwards, also where an import has failed."""
    done = _python(
        "-c",
        "import gc, sys\n"
        "from gateway.command.lean import import_for_good\n"
        "import_for_good('json')\n"
        "print(gc.isenabled(), gc.get_freeze_count() > 1000, 'json' in sys.modules)\n"
        "try: import_for_good('no_such_module')\n"
        "except ImportError: print(gc.isenabled())\n",
    )
    assert (done.stdout.split(), done.stderr) == (["True"] * 4, "")
