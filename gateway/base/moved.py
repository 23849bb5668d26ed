"""Old names of public modules: they still work, with a `DeprecationWarning`."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

MOVED: Final = {
    "gateway.clock": "gateway.base.clock",
    "gateway.errors": "gateway.base.errors",
}
"""Modules named in the documentation of earlier versions, by their old names."""


class OldNames:
    """Finds modules by their old names, and loads them.

    A finder and a loader need no base class. To import those of `importlib.abc` takes a third of
    the time that passes at a start until signals are noted.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a moved module, or None if this finder does not know it."""
        return ModuleSpec(fullname, cast("Loader", self)) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return None: an ordinary module, filled with the names of its successor."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module with the names of its successor."""
        name = MOVED[module.__name__]
        warnings.warn(
            f"{module.__name__} has been renamed to {name}", DeprecationWarning, stacklevel=2
        )
        new = vars(importlib.import_module(name))
        vars(module).update({key: one for key, one in new.items() if not key.startswith("__")})


def install() -> None:
    """Make the old names importable; call once."""
    sys.meta_path.append(OldNames())
