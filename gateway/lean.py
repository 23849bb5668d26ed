"""What a process that is the command line's own, and no library's, spares itself when it starts.

Both of these are for the whole process, so a library must not do them to the program that uses it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec
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
    vars(package)["__getattr__"] = partial(_find, package, spec.loader.exec_module)
    sys.modules[name] = package
    above, _, last = name.rpartition(".")
    if above:
        setattr(sys.modules[above], last, package)


def _find(package: ModuleType, execute: Callable[[ModuleType], None], name: str) -> object:
    """The version of a package, one of its modules, or else what only the whole of it has."""
    if name == "__version__":
        # Commands that import no package do not need this module.
        from importlib.metadata import version

        return version(package.__name__)
    path = f"{package.__name__}.{name}"
    if find_spec(path) is not None:
        return import_module(path)
    vars(package).pop("__getattr__", None)
    execute(package)
    return getattr(package, name)
