"""What a killed gateway or worker held is free again: slots, leased tokens, turns of a queue."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from typing import Final

import aiohttp

from bench.chaos.subject import Application, Case, Finding, Subject, Tally, ask, kill
from tests.servers import until
from tests.workers.family import children

LEASE_S: Final = 2.0
SLOTS: Final = 4
LIMIT: Final = 1000
SHARE: Final = 0.1
WAITING: Final = 5


def _text(upstream: str) -> str:
    up = f"upstream: {upstream}"
    return (
        "domain: leases\nroutes:\n"
        f"  /held/**: {{ {up}, limit: {SLOTS} at once per all, lease: {LEASE_S:.0f}s }}\n"
        f"  /leased: {{ {up}, limit: {LIMIT}/d per all, algorithm: fixed_window, "
        f"consistency: leased, leased: {{ size: {SHARE:.0%}, lifetime: 1s }} }}\n"
        f"  /queue: {{ {up}, limit: 2/s per all, queue: {{ max: 20, max_wait: 5s }} }}\n"
    )


async def leases(case: Case) -> list[Finding]:
    """Kill what holds, and see when others have it."""
    if case.is_memory and case.workers == 1:
        # A single process forgets all with its end.
        return []
    async with Application() as application:
        first, second = Subject(case, "first"), Subject(case, "second")
        for subject in (first, second):
            subject.write(_text(application.url))
        await first.start()
        others = first
        if not case.is_memory:
            await second.start()
            others = second
        held = await _slots(case, application, first, others)
        more = [] if case.is_memory else await _tokens_and_turns(application, first, second)
        for subject in (first, others):
            with suppress(AssertionError):
                await subject.stop()
    return [*held, *more]


async def _slots(
    case: Case, application: Application, first: Subject, others: Subject
) -> list[Finding]:
    """Take all slots, and kill what has them: the gateway, or the workers."""
    tally = Tally()
    async with aiohttp.ClientSession() as session:
        holding = [
            asyncio.create_task(ask(session, first.url, "/held/slot", tally)) for _ in range(SLOTS)
        ]
        await until(lambda: application.passed["/held/slot"] == SLOTS)
        refused = await ask(session, others.url, "/held/slot", tally)
        victims = children(first.pid)[1:] if case.is_memory else first.family
        began = time.monotonic()
        for pid in victims:
            kill(pid, signal.SIGKILL)
        await asyncio.gather(*holding)
        # One request at a time until one passes: it arrives at the application, which holds it.
        while application.passed["/held/slot"] == SLOTS:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await ask(session, others.url, "/held/slot", Tally())
            if time.monotonic() - began > 60:
                break
        took = time.monotonic() - began
    bound = 2.0 if case.is_memory else LEASE_S + 1.0
    what = "slots of killed workers are free after" if case.is_memory else "slots after"
    return [
        Finding("all slots taken: refused", str(refused), "429", refused == 429),
        Finding(what, f"{took:.2f} s", f"{bound:.0f} s", took <= bound),
    ]


async def _tokens_and_turns(
    application: Application, first: Subject, second: Subject
) -> list[Finding]:
    """Kill a gateway that has leased tokens and waiting requests; another uses the rest."""
    await first.start()
    tally, turns = Tally(), Tally()
    async with aiohttp.ClientSession() as session:
        for _ in range(LIMIT // 4):
            await ask(session, first.url, "/leased", tally)
        waiting = [
            asyncio.create_task(ask(session, first.url, "/queue", turns)) for _ in range(WAITING)
        ]
        await until(lambda: application.passed["/queue"] >= 1)
        for pid in first.family:
            kill(pid, signal.SIGKILL)
        await asyncio.gather(*waiting)
        began = time.monotonic()
        turn = await ask(session, second.url, "/queue", Tally())
        waited = time.monotonic() - began
        refused = 0
        ends = time.monotonic() + 30
        while refused < 3 and time.monotonic() < ends:
            if await ask(session, second.url, "/leased", tally) != 200:
                refused += 1
                await asyncio.sleep(0.5)
    passed = tally.passed("/leased")
    least = round(LIMIT * (1 - SHARE)) - 1
    return [
        Finding("leased: passed", str(passed), f"{least} to {LIMIT}", least <= passed <= LIMIT),
        Finding(
            f"turn behind {WAITING} of a killed gateway",
            f"{turn} after {waited:.2f} s",
            "200 within 5 s",
            turn == 200 and waited <= 5,
        ),
    ]
