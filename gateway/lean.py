"""What a process that is the command line's own, and no library's, spares itself when it starts.

Both of these are for the whole process, so a library must not do them to the program that uses it.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec


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


def leave_out_client() -> None:
    """Let modules of aiohttp be imported without its client, until somebody asks for that.

    To be called before anything of aiohttp is imported. Whatever is imported of it, the client
    would come first: two TLS contexts with each authority that this machine trusts, and dozens
    of classes whose methods are compiled on the way. A store of another distribution may need it,
    and has it from the moment on at which it names it.

    A start takes a sixth less of the CPU by that ("Start to first answer" of `make bench`).
    """
    spec = find_spec("aiohttp")
    if spec is None or spec.loader is None or "aiohttp" in sys.modules:
        return
    # The command line has no use for it.
    from importlib.metadata import version

    execute = spec.loader.exec_module
    package = module_from_spec(spec)

    def find(name: str) -> object:
        """One of its modules, or else what only the whole package has."""
        if find_spec(f"aiohttp.{name}") is not None:
            return import_module(f"aiohttp.{name}")
        vars(package).pop("__getattr__", None)
        execute(package)
        return getattr(package, name)

    # Its modules ask for the version.
    vars(package).update(__version__=version("aiohttp"), __getattr__=find)
    sys.modules["aiohttp"] = package
