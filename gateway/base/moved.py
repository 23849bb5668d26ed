"""Modules that users import and that have another name now: the old one goes on, with a warning."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

MOVED: Final = {
    "gateway.clock": "gateway.base.clock",
    "gateway.errors": "gateway.base.errors",
}
"""By their old names, what the documentation of earlier versions imports."""


class OldNames(MetaPathFinder, Loader):
    """Finds modules by their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module is found; None if that is not for this finder to say."""
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """None: an ordinary module, which gets the names of the new one."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give a module the names of the one that took its place."""
        name = MOVED[module.__name__]
        warnings.warn(f"{module.__name__} is {name} now", DeprecationWarning, stacklevel=2)
        new = vars(importlib.import_module(name))
        vars(module).update({key: one for key, one in new.items() if not key.startswith("__")})


def install() -> None:
    """Let the old names be imported; to be called once."""
    sys.meta_path.append(OldNames())
