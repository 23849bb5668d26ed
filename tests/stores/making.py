"""Stores for tests that break what they are connected to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest

from gateway.base.errors import StoreError
from gateway.stores.base import Store
from tests.servers import WAIT_S, until
from tests.stores.contract import BUCKET, ask

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


async def says(store: Store, words: str) -> None:
    """Return when a store says so of why it does not decide."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with pytest.raises(StoreError) as caught:
                await store.decide([ask(BUCKET)])
            if words in str(caught.value):
                return
            await asyncio.sleep(0.01)
