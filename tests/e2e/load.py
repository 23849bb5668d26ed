"""Load from many clients at once, with a note of every answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

import aiohttp


class Sample(NamedTuple):
    """One request and what became of it.

    Attributes:
        key: what it was counted under.
        started: when it was sent, as `time.monotonic` tells it.
        ended: when its answer was complete.
        status: of the answer; 0 if there was none.
        retry_after: the field of that name; empty if there was none.
    """

    key: str
    started: float
    ended: float
    status: int
    retry_after: str


async def ask(session: aiohttp.ClientSession, url: str, key: str) -> Sample:
    """One request; no failure is an exception here."""
    started = time.monotonic()
    status, retry_after = 0, ""
    try:
        async with session.get(url, headers={"X-Key": key}) as answer:
            await answer.read()
            status = answer.status
            retry_after = answer.headers.get("Retry-After", "")
    except aiohttp.ClientError:
        pass
    return Sample(key, started, time.monotonic(), status, retry_after)


async def hammer(
    urls: Sequence[str],
    keys: Sequence[str],
    meanwhile: Callable[[], Awaitable[None]],
    clients: int = 2,
    pause_s: float = 0,
) -> list[Sample]:
    """Ask for each key at each address without rest, as long as `meanwhile` runs.

    Args:
        urls: what to ask.
        keys: sent as `X-Key`.
        meanwhile: sets the time.
        clients: how many ask at once, for each key and address.
        pause_s: how long each rests between two requests.
    """
    samples: list[Sample] = []
    is_over = False

    async def client(session: aiohttp.ClientSession, url: str, key: str) -> None:
        while not is_over:
            samples.append(await ask(session, url, key))
            if pause_s:
                await asyncio.sleep(pause_s)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for _ in range(clients):
            for url in urls:
                for key in keys:
                    group.create_task(client(session, url, key))
        await meanwhile()
        is_over = True
    return samples


def statuses(samples: Iterable[Sample]) -> Counter[int]:
    """How often each status came."""
    return Counter(sample.status for sample in samples)


def between(samples: Iterable[Sample], start: float, end: float) -> list[Sample]:
    """The samples that lie wholly in a span of time."""
    return [each for each in samples if start <= each.started and each.ended <= end]


def least_admitted(samples: Sequence[Sample], rate: float, burst: float) -> int:
    """How many of these a token bucket lets through at least, however scarce or late they were.

    A request is decided at some moment between its beginning and its end. A bucket that is
    smaller by what comes back within the longest such time lets no more through at the ends than
    the true one did at the moments of decision: between any two of those lies at least the time
    between the ends without that longest time.
    """
    latest_s = max(each.ended - each.started for each in samples)
    size = burst - rate * latest_s
    tokens, before, admitted = size, 0.0, 0
    for now in sorted(each.ended for each in samples):
        tokens, before = min(size, tokens + rate * (now - before)), now
        if tokens >= 1:
            tokens -= 1
            admitted += 1
    return admitted


def span_s(samples: Sequence[Sample]) -> float:
    """From the first request to the last answer."""
    return max(each.ended for each in samples) - min(each.started for each in samples)
