"""What is said to install where a library is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.base.install_hint import install_hint, libraries
from tests.processes import ROOT

FIRST = {"mysql": "asyncmy", "grpc": "grpcio", "zmq": "pyzmq"}


@pytest.mark.parametrize("extra", FIRST)
def test_hints_name_libraries_and_not_this_distribution(extra: str) -> None:
    """The package of that name in an index could be another's (dependency confusion)."""
    assert any(one.startswith(FIRST[extra]) for one in libraries(extra))
    assert install_hint(extra).startswith(f"{sys.executable} -m pip install ")
    assert "sluice" not in install_hint(extra).removeprefix(sys.executable)


def test_hints_of_a_source_that_is_not_installed_name_its_folder() -> None:
    """There pip finds what the extra consists of."""
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            "from gateway.base.install_hint import install_hint as hint; print(hint('zmq'))",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().endswith(f" -m pip install '{Path(ROOT)}[zmq]'")
