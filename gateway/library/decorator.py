"""A decorator that limits the calls of a coroutine function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class LimitDecorator:
    """The decorator that `Limiter.limit` returns.

    Args:
        hold: returns the context of a call, given its key and cost; raises on entry if the call is
            refused.
        key: the key of a call, or a function of its arguments.
        cost: the cost of a call, or a function of its arguments.
    """

    __slots__ = ("_cost", "_hold", "_key")

    def __init__(
        self,
        hold: Callable[[str, int], AbstractAsyncContextManager[object]],
        key: str | Callable[..., str],
        cost: int | Callable[..., int],
    ) -> None:
        self._hold = hold
        self._key = key
        self._cost = cost

    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        """Return the limited function, with the same signature.

        Raises:
            TypeError: it is not a coroutine function.
        """
        if not iscoroutinefunction(function):
            raise TypeError(f"{function!r} is not a coroutine function ('async def')")
        hold, key, cost = self._hold, self._key, self._cost

        @wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            amount = cost(*args, **kwargs) if callable(cost) else cost
            name = key(*args, **kwargs) if callable(key) else key
            async with hold(name, amount):
                return await function(*args, **kwargs)

        return limited
