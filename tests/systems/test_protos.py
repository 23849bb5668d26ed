"""The descriptor sets that are checked in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT


def test_descriptor_sets_are_what_protoc_makes(tmp_path: Path) -> None:
    """A change of a `.proto` file requires `make protos`."""
    script = ROOT / "scripts" / "protos.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=60)
    checked_in = {path.name: path.read_bytes() for path in ROOT.glob("gateway/**/*.pb")}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == checked_in
    assert checked_in.keys() == {"envoy.pb", "ratio.pb"}
