"""Whether what one does grows with how many there are: ratios, which no slow machine changes.

Run as `python -m bench.micro.crowds`. First those who leave a queue, all at once and one by one:
what each costs among 10,000, over what he costs among 500. Then requests made to be dear: what a
path of 16 kB of one piece costs to read, over one of plain segments of that length; and what the
identity of a header of so many characters costs, over one of letters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import uvloop
from multidict import CIMultiDict

from bench.micro.routing import Request
from gateway.base.clock import ManualClock
from gateway.base.errors import BadRequestError
from gateway.limiter.waiting_room import WaitingRoom
from gateway.limits.rate import Limit
from gateway.routing.keys import compile_key
from gateway.routing.path import readings
from gateway.stores.base import Ask
from gateway.stores.memory.store import MemoryStore

FEW: Final = 500
MANY: Final = 10_000
ROUNDS: Final = 5
LENGTH: Final = 16_000
LIMIT: Final = Limit(1, 1_000_000, 1, max_wait_us=10**12, scope="bench")
PIECES: Final = (
    *("%41", "%2e", "%25", "%252e", "%2F", "%80", "%e4%bd%a0", "%20"),
    *("a/", "/", "//a", ";", ";a/", ".", "..a/", "./a/", "a/../"),
)
CHARACTERS: Final = ("%", "=", "é", "a%", '"')


async def seconds_per_leaver(crowd: int, *, one_by_one: bool) -> float:
    """CPU time of each of so many who wait for one key, and leave."""
    store = MemoryStore(clock=ManualClock(10**15))
    room = WaitingRoom(crowd)
    ask = Ask((LIMIT,), ("k",), 1, 10**12)
    store.decide_now(ask)

    async def wait() -> None:
        await room.wait(ask, store.decide_now(ask), store.give_back_now)

    tasks = [asyncio.create_task(wait()) for _ in range(crowd)]
    await asyncio.sleep(0)
    if len(room) != crowd:
        raise SystemExit(f"{len(room)} wait, and not {crowd}")
    began = time.process_time()
    for task in tasks:
        task.cancel()
        if one_by_one:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    return (time.process_time() - began) / crowd


def leaving(crowd: int, *, one_by_one: bool) -> float:
    """The same, in a loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(seconds_per_leaver(crowd, one_by_one=one_by_one))


def best(measure: Callable[[], float]) -> float:
    """The best of some rounds: what else runs makes none of them faster."""
    return min(measure() for _ in range(ROUNDS))


def seconds(call: Callable[[], object]) -> float:
    """CPU time of one call."""
    began = time.process_time()
    for _ in range(10):
        try:
            call()
        except BadRequestError:
            continue
    return (time.process_time() - began) / 10


def show(title: str, ratio: float) -> None:
    print(f"{title:<64}{ratio:>8.1f}")


def show_leaving() -> None:
    """Of those who leave a queue."""
    for title, one_by_one in (("all at once", False), ("one by one", True)):
        few, many = (best(partial(leaving, crowd, one_by_one=one_by_one)) for crowd in (FEW, MANY))
        show(f"leaving a queue of {MANY:,}, {title}, over one of {FEW}", many / few)


def show_requests() -> None:
    """Of paths and header values."""
    plain = best(partial(seconds, partial(readings, "/" + "a" * LENGTH)))
    segments = best(partial(seconds, partial(readings, "/a" * (LENGTH // 2))))
    show("a path of 16 kB of segments, over one of letters", segments / plain)
    for piece in PIECES:
        path = "/" + piece * (LENGTH // len(piece))
        cost = best(partial(seconds, partial(readings, path)))
        show(f"a path of 16 kB of {piece}, over one of segments", cost / segments)
    key = compile_key(["header:x-api-key"], if_missing="ip", route="/")

    def cost_of(value: str) -> float:
        request = Request()._replace(headers=CIMultiDict({"X-Api-Key": value}))
        return best(partial(seconds, partial(key, request)))

    letters = cost_of("a" * LENGTH)
    for piece in CHARACTERS:
        cost = cost_of(piece * (LENGTH // len(piece)))
        show(f"the identity of 16 kB of {piece}, over one of letters", cost / letters)


if __name__ == "__main__":
    show_leaving()
    show_requests()
