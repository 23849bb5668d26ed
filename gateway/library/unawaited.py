"""A decision that nobody has awaited yet."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, NoReturn

from gateway.library.decision import Decision


class Unawaited(Coroutine[Any, Any, Decision]):
    """A coroutine that cannot be taken for its result.

    Python's own are true: `if limiter.acquire(key):` without `await` would let everybody pass.

    Args:
        coroutine: what is to be awaited.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Decision]) -> None:
        self._coroutine = coroutine

    def __bool__(self) -> NoReturn:
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
