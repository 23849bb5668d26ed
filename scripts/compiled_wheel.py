"""The build hook of the wheel: compiled where that is possible, else for any platform.

A line says which of the two it is, and why. An editable install is never compiled.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
import compiled


class CompiledWheelHook(BuildHookInterface[Any]):
    """Adds the compiled modules to the wheel, beside their sources."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what a build needs; mypy reads the types of what the gateway imports."""
        if compiled.obstacle():
            return []
        groups = self.metadata.config["dependency-groups"]
        return [*groups["compile"], *self.metadata.core.dependencies]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is packed."""
        if version != "standard":
            return
        reason = compiled.obstacle()
        if not reason and importlib.util.find_spec("mypyc") is None:
            reason = "mypy is not installed"
        if not reason:
            self._scratch = tempfile.TemporaryDirectory()
            folder = Path(self._scratch.name, "package")
            try:
                compiled.compile_package(Path(self.root), folder)
            except compiled.CompileError as error:
                reason = str(error)
        if reason:
            self.app.display_warning(f"sluice: the wheel is in pure Python: {reason}")
            return
        libraries = sorted(folder.rglob("*.so"))
        self.app.display_info(f"sluice: the wheel is compiled: {len(libraries) - 1} modules")
        build_data["force_include"] |= {
            str(path): str(path.relative_to(folder)) for path in libraries
        }
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
