"""Imports modules for the whole life of a process, out of the garbage collector's sight.

For the `sluice` command only: it changes the collector of the whole process, which a library must
not do to the program that uses it.
"""

from __future__ import annotations

import gc
from importlib import import_module


def preload(*names: str) -> None:
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
