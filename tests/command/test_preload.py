"""What a process of the command line imports, and what it leaves out, as the interpreter tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.processes import PYTHON_PATH, free_port

HEAVY: Final = ("pydantic", "aiohttp", "yaml", "asyncio")
"""What a command needs only if it reads a configuration, or serves."""


def _python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _imported(told: str) -> set[str]:
    """The modules that `-X importtime` has told of."""
    return {line.rpartition("|")[2].strip() for line in told.splitlines() if "|" in line}


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


def test_who_has_no_tls_reads_no_certificates(tmp_path: Path) -> None:
    """A configuration without certificates is checked without the library that reads them."""
    file = tmp_path / "sluice.yaml"
    file.write_text("routes: { /: { respond: { status: 200 } } }\n")
    done = _python("-X", "importtime", "-m", "gateway", "check", str(file))
    assert done.returncode == 0
    assert "gateway.net.tls.certificate" in _imported(done.stderr)
    assert not {name for name in _imported(done.stderr) if name.startswith("cryptography")}


def test_a_limiter_imports_no_server_and_no_prometheus() -> None:
    """A program that only limits does without what only a gateway shows."""
    done = _python(
        "-c",
        "import sys\n"
        "from gateway import Limiter\n"
        "print(sorted({'aiohttp', 'prometheus_client', 'redis'} & set(sys.modules)))\n",
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_imports_for_good_are_no_garbage_and_later_objects_are() -> None:
    """Collections go on afterwards, also where an import has failed."""
    done = _python(
        "-c",
        "import gc, sys\n"
        "from gateway.command.preload import preload\n"
        "preload('json')\n"
        "print(gc.isenabled(), gc.get_freeze_count() > 1000, 'json' in sys.modules)\n"
        "try: preload('no_such_module')\n"
        "except ImportError: print(gc.isenabled())\n",
    )
    assert (done.stdout.split(), done.stderr) == (["True"] * 4, "")
