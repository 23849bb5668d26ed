"""Stores for tests that break what they are connected to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from gateway.stores.base import Store
from tests.servers import until

S = TypeVar("S", bound=Store)


@contextlib.asynccontextmanager
async def making(kind: Callable[..., S], **defaults: Any) -> AsyncIterator[Callable[..., S]]:
    """Makes stores of a kind that are closed at the end."""
    made: list[S] = []

    def make(url: str, **options: Any) -> S:
        made.append(kind(url, **{**defaults, **options}))
        return made[-1]

    yield make
    for store in made:
        await store.aclose()


async def ready(store: S) -> S:
    """The store, started and connected to all of its servers."""
    await store.start()
    await until(lambda: store.is_ready and "down" not in repr(store))
    return store
