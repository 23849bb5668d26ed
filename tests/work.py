"""How much work something is: lines of a module that run, which no other process can change."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any


class Work:
    """What was done.

    Attributes:
        lines: lines that have run.
        calls: functions that were called.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.calls = 0


@contextmanager
def counted(*modules: ModuleType) -> Iterator[Work]:
    """Count what runs of these modules in this thread."""
    files = {module.__file__ for module in modules}
    work = Work()

    def each(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        work.lines += event == "line"
        return each

    def call(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in files:
            return None
        work.calls += 1
        return each

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield work
    finally:
        sys.settrace(before)
