"""Autobahn's WebSocket suite: installed apart, run against two servers, and what it found.

The suite itself has never left Python 2.7. It is installed into a folder of its own,
`.venv-autobahn`, with the versions that its last release was made for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.processes import ROOT

FOLDER: Final = ROOT / ".venv-autobahn"

PINS: Final = (
    *("autobahntestsuite==25.10.1", "autobahn==0.10.9", "Twisted==19.10.0", "klein==17.10.0"),
    *("zope.interface==4.6.0", "pyOpenSSL==19.1.0", "cryptography==3.3.2", "incremental==16.10.1"),
    *("service_identity==18.1.0", "txaio==2.1.0", "Werkzeug==1.0.1", "jinja2==2.11.3"),
    *("markupsafe==1.1.1", "setuptools==44.0.0", "six==1.16.0", "unittest2==1.1.0"),
)

# The files of namespace packages are only read where a folder is a site of its own.
_START: Final = """\
import site, sys
site.addsitedir(sys.argv.pop(1))
from autobahntestsuite.wstest import run
run()
"""


class SuiteError(Exception):
    """The suite cannot be run here."""


class Difference(NamedTuple):
    """A case that went otherwise with the gateway than without it."""

    case: str
    direct: str
    through: str


def python2() -> str:
    """A Python 2.7: the one that PYTHON2 names, or one that is found.

    Raises:
        SuiteError: there is none.
    """
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob("2.7.*/bin/python2.7"))
    for name in (os.environ.get("PYTHON2", ""), "python2.7", *map(str, pyenv)):
        found = shutil.which(name) if name else None
        # What pyenv puts into the path may stand for a version that is not there.
        if found and not subprocess.run([found, "-c", ""], check=False).returncode:
            return found
    raise SuiteError(
        "Autobahn's suite needs Python 2.7: install one (pyenv install 2.7.18), or name it: "
        "make autobahn PYTHON2=/path/to/python2.7"
    )


def install(python: str) -> None:
    """Install the suite, if it is not there yet."""
    if (FOLDER / "complete").exists():
        return
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--target", str(FOLDER / "site"), *PINS], check=True)
    (FOLDER / "complete").touch()


def start(
    python: str, agent: str, port: int, cases: Sequence[str], folder: Path
) -> subprocess.Popen[bytes]:
    """Begin to try one server; what is found is in `folder` when the process has ended."""
    spec = {
        "outdir": str(folder / agent),
        "servers": [{"agent": agent, "url": f"ws://127.0.0.1:{port}"}],
        "cases": list(cases),
        "exclude-cases": [],
        "exclude-agent-cases": {},
    }
    path = folder / f"{agent}.json"
    path.write_text(json.dumps(spec))
    command = [python, "-c", _START, str(FOLDER / "site")]
    with (folder / f"{agent}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, "-m", "fuzzingclient", "-s", str(path)],
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def results(folder: Path, agent: str) -> dict[str, dict[str, Any]]:
    """What was found of each case.

    Raises:
        SuiteError: the suite did not get to its end.
    """
    try:
        index: dict[str, dict[str, Any]] = json.loads((folder / agent / "index.json").read_text())
    except FileNotFoundError:
        raise SuiteError(f"no report; see {folder / agent}.log") from None
    return index[agent]


def verdict(result: Mapping[str, Any] | None) -> str:
    """A result as far as it does not depend on how fast bytes came.

    NON-STRICT is a server that is right, but closed before it had answered what came earlier.
    """
    if result is None:
        return "not tried"
    behavior = str(result["behavior"]).replace("NON-STRICT", "OK")
    return f"{behavior}, closing {result['behaviorClose']}, code {result['remoteCloseCode']}"


def compare(
    direct: Mapping[str, dict[str, Any]], through: Mapping[str, dict[str, Any]]
) -> list[Difference]:
    """The cases that went otherwise, in the order of their numbers."""
    cases = sorted({*direct, *through}, key=lambda case: [int(part) for part in case.split(".")])
    found = [
        Difference(case, verdict(direct.get(case)), verdict(through.get(case))) for case in cases
    ]
    return [each for each in found if each.direct != each.through]
