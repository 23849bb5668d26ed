"""The distribution holds all that it needs when it is installed.

Here in pure Python; `test_compiled.py` builds one that is compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    """Lua scripts, the demo's configuration and py.typed travel with the modules."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "SLUICE_PURE": "1"},
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("sluice_gateway-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("gateway/")}
    in_tree = {
        str(path.relative_to(ROOT))
        for path in ROOT.glob("gateway/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == in_tree
    assert {"gateway/py.typed", "gateway/command/demo.yaml"} <= packed
