"""What a process that is the command line's own, and no library's, spares itself when it starts.

Both of these are for the whole process, so a library must not do them to the program that uses it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType


def import_for_good(*names: str) -> None:
    """Import modules without looking for garbage meanwhile; `import` then finds them there.

    What they make lives as long as the process: no collection need look at it, now or later. A
    start takes a quarter less of the CPU by that ("Start to first answer" of `make bench`).
    """
    gc.disable()
    try:
        for name in names:
            import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def import_on_demand(*names: str) -> None:
    """Let modules of packages be imported without all else that the packages bring by themselves.

    Of aiohttp that is the client: two TLS contexts with each authority that this machine trusts,
    and dozens of classes whose methods are compiled on the way; of redis it is all commands. Who
    names something of that, as a store of another distribution may, has the whole package from
    then on. To be called before anything of the packages is imported.

    A start takes a sixth less of the CPU by that ("Start to first answer" of `make bench`).
    """
    for name in names:
        # What is not installed is missed where it is needed.
        with suppress(ImportError):
            _put_off(name)


def _put_off(name: str) -> None:
    spec = find_spec(name)
    if spec is None or spec.loader is None or name in sys.modules:
        return
    package = module_from_spec(spec)
    vars(package)["__getattr__"] = _Missing(package, spec.loader.exec_module)
    sys.modules[name] = package
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, package)


class _Missing:
    """Finds what a package that is put off does not have yet.

    Args:
        package: that is put off.
        execute: makes the whole of it.
    """

    def __init__(self, package: ModuleType, execute: Callable[[ModuleType], None]) -> None:
        self._package = package
        self._execute = execute
        self._lock = RLock()
        self._is_executing = False

    def __call__(self, name: str) -> object:
        """The version of a package, one of its modules, or else what only the whole of it has."""
        package = self._package.__name__
        if name == "__version__" and "." not in package:
            # Commands that import no package do not need this module.
            from importlib.metadata import version

            return version(package)
        path = f"{package}.{name}"
        if find_spec(path) is not None:
            return import_module(path)
        self._make_whole()
        if self._is_executing and name not in vars(self._package):
            message = f"module {package!r} has no attribute {name!r} yet"
            raise AttributeError(message, name=name, obj=self._package)
        # A package may have a `__getattr__` of its own.
        found: object = getattr(self._package, name)
        return found

    def _make_whole(self) -> None:
        # Other threads wait for all of it, but its own modules, meanwhile, for nothing.
        with self._lock:
            found = vars(self._package)
            if self._is_executing or found.get("__getattr__") is not self:
                return
            self._is_executing = True
            try:
                self._execute(self._package)
            finally:
                self._is_executing = False
            if found.get("__getattr__") is self:
                del found["__getattr__"]
