"""A decision that nobody has awaited yet."""

from __future__ import annotations

import asyncio.coroutines
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

from gateway.library.decision import Decision

_Method = TypeVar("_Method", bound=Callable[..., Coroutine[Any, Any, Decision]])


def coroutine_function(method: _Method) -> _Method:
    """The same method, marked as what it was if it were `async def`.

    Mocks with a specification and frameworks ask whether what they call is to be awaited.
    """
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(method)
    # What `asyncio.iscoroutinefunction` looks for, which mocks ask.
    method._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
    return method


class Unawaited(Coroutine[Any, Any, Decision]):
    """A coroutine that cannot be taken for its result.

    Python's own are true: `if limiter.acquire(key):` without `await` would let everybody pass.

    Args:
        coroutine: what is to be awaited.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Decision]) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        """What else a coroutine has: its name, and `cr_frame`, by which a task shows its stack."""
        return getattr(self._coroutine, name)

    def __bool__(self) -> bool:
        is_begun = inspect.getcoroutinestate(self._coroutine) != inspect.CORO_CREATED
        # Python 3.13's asyncio looks whether a task has a coroutine when it shows the task.
        if is_begun or sys._getframe(1).f_globals.get("__name__") == "asyncio.base_tasks":  # noqa: SLF001
            return True
        self._coroutine.close()
        raise TypeError("the decision was not awaited: write await before it")

    def __await__(self) -> Generator[Any, None, Decision]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """As of any coroutine; what tasks are run by."""
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        """As of any coroutine."""
        return self._coroutine.throw(typ if val is None else val)

    def close(self) -> None:
        """As of any coroutine."""
        self._coroutine.close()
