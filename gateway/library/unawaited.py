"""A decision that has not been awaited."""

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
    """Mark a method as if it were `async def`.

    Mocks with a specification and frameworks check whether a method must be awaited.
    """
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(method)
    # The attribute that `asyncio.iscoroutinefunction` checks, which mocks use.
    method._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001
    return method


class Unawaited(Coroutine[Any, Any, Decision]):
    """A coroutine that cannot be mistaken for its result.

    Plain coroutines are true: `if limiter.acquire(key):` without `await` would admit everything.

    Args:
        coroutine: the coroutine to await.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Decision]) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        """Other attributes of a coroutine, such as its name and frame."""
        return getattr(self._coroutine, name)

    def __bool__(self) -> bool:
        is_begun = inspect.getcoroutinestate(self._coroutine) != inspect.CORO_CREATED
        # Python 3.13's asyncio checks whether a task has a coroutine when it prints the task.
        if is_begun or sys._getframe(1).f_globals.get("__name__") == "asyncio.base_tasks":  # noqa: SLF001
            return True
        self._coroutine.close()
        raise TypeError("the decision was not awaited: write await before it")

    def __await__(self) -> Generator[Any, None, Decision]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """As in any coroutine; tasks use it."""
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        """As in any coroutine."""
        return self._coroutine.throw(typ if val is None else val)

    def close(self) -> None:
        """As in any coroutine."""
        self._coroutine.close()
