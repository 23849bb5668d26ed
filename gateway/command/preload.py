"""Imports modules for the whole life of a process, exempt from garbage collection.

For the `sluice` command only: it changes the collector of the whole process, which a library must
not do.
"""

from __future__ import annotations

import gc
from importlib import import_module


def preload(*names: str) -> None:
    """Import modules with the garbage collector off; later imports find them loaded.

    Their objects live as long as the process, so collections can skip them, now and later. This
    saves a quarter of the CPU time of a start ("Start to first answer" of `make bench`).
    """
    gc.disable()
    try:
        for name in names:
            import_module(name)
    finally:
        gc.freeze()
        gc.enable()
