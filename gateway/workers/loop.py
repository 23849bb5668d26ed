"""The event loop that a process of the gateway runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


def run_in_loop(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run until the work is done, on uvloop if it is installed; returns its exit status."""
    try:
        import uvloop
    except ImportError:
        factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work())
