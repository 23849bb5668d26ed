"""Processes killed and stopped at random under load, with reloads in between.

With one process there is none to spare; another gateway on the same store takes over its clients
then, which `leases` shows. So this part is about workers.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from http import HTTPStatus
from typing import Final

import aiohttp

from bench.chaos.subject import Application, Case, Finding, Subject, Tally, ask, kill, load
from tests.servers import until
from tests.workers.family import children

WATCHDOG_S: Final = 1.0
BOUND_S: Final = 3.0
"""A beat, the two halves of the watchdog's time, and the start of a successor."""
LIMIT: Final = 400
CLIENTS: Final = 12
EXACT: Final = ("/exact", "/log")
ROUTES: Final = [*EXACT, "/free", "/free"]


def _text(upstream: str, number: int) -> str:
    window = "algorithm: fixed_window, on_store_error: closed"
    return (
        "routes:\n"
        f"  /exact: {{ upstream: {upstream}, limit: {LIMIT}/d per all, {window} }}\n"
        f"  /log: {{ upstream: {upstream}, limit: {LIMIT}/d per all, "
        "algorithm: sliding_window_log, on_store_error: closed }\n"
        f"  /free: {{ upstream: {upstream} }}\n"
        f'  /version: {{ respond: {{ status: 200, body: "{number}" }} }}\n'
    )


async def _versions(url: str) -> set[str]:
    """What forty connections are answered, of whichever worker."""
    found = set()
    for _ in range(40):
        async with aiohttp.ClientSession() as session, session.get(url + "/version") as answer:
            found.add(await answer.text())
    return found


class _Killing:
    """One run.

    Args:
        case: how it runs.
        application: the upstream.
    """

    def __init__(self, case: Case, application: Application) -> None:
        self._case = case
        self._upstream = application.url
        self._chance = random.Random(case.seed)
        self.subject = Subject(case)
        self.tally = Tally()
        self.incidents: list[float] = []
        self.limiters = 0
        self.applied = 0
        self.refused = 0
        self.halves: list[set[str]] = []
        self._limiter = 0
        self._number = 0
        self._in_force = {"0"}

    def _write(self) -> None:
        server = f", watchdog: {WATCHDOG_S:.0f}s"
        self.subject.write(_text(self._upstream, self._number), server=server)

    async def run(self) -> None:
        """Start, kill and stop for as long as the case says, and use up the limits."""
        subject = self.subject
        self._write()
        await subject.start()
        self._limiter = children(subject.pid)[0]
        ends = time.monotonic() + self._case.seconds
        async with load(subject.url, ROUTES, self.tally, CLIENTS, 0.005):
            while time.monotonic() < ends:
                await self._incident()
        async with aiohttp.ClientSession() as session:
            for route in EXACT:
                while await ask(session, subject.url, route, self.tally) == HTTPStatus.OK:
                    pass

    async def _incident(self) -> None:
        """Kill or stop a process at some moment of a reload; all agree afterwards."""
        chance, subject = self._chance, self.subject
        self._number += 1
        self._write()
        before = set(children(subject.pid))
        # The memory store's counts die with the limiter: it is spared there.
        spared = {self._limiter} if self._case.is_memory else set()
        victim = chance.choice(sorted(before - spared))
        reload = asyncio.create_task(subject.reload())
        await asyncio.sleep(chance.uniform(0, 0.2))
        self.incidents.append(time.monotonic())
        kill(victim, chance.choice((signal.SIGKILL, signal.SIGSTOP)))
        await asyncio.sleep(chance.uniform(1.5, 3.5))
        status, outcome = await reload
        seen = await _settled(subject, self._case.workers)
        if victim == self._limiter:
            self.limiters += 1
            self._limiter = min(set(children(subject.pid)) - before)
        if status == HTTPStatus.OK and outcome["applied"]:
            self.applied += 1
            self._in_force = {str(self._number)}
        elif not status:
            # The limiter, which would have answered, was the victim: one or the other.
            self._in_force.add(str(self._number))
        else:
            self.refused += 1
        if len(seen) != 1 or not seen <= self._in_force:
            self.halves.append(seen)
        self._in_force = seen


async def kills(case: Case) -> list[Finding]:
    """Kill and stop processes for as long as the case says; see the module."""
    if case.workers == 1:
        return []
    async with Application() as application:
        run = _Killing(case, application)
        await run.run()
        status = await run.subject.stop()
        complaints = run.subject.complaints()
    tally, deaths = run.tally, len(run.incidents)
    bound_s = WATCHDOG_S + BOUND_S
    late = [
        one
        for one in tally.failures
        if not any(0 <= one - began <= bound_s for began in run.incidents)
    ]
    halves = run.halves
    return [
        Finding(
            "processes killed or stopped", f"{deaths}, limiters {run.limiters}", "", deaths > 0
        ),
        Finding(
            "requests, failed",
            f"{tally.total}, {len(tally.failures)} {dict(tally.reasons) or ''}",
            f"at most {CLIENTS} for each worker",
            run.limiters > 0 or len(tally.failures) <= CLIENTS * deaths,
        ),
        Finding("failed at another time", str(len(late)), "0", not late),
        Finding(
            "longest wait",
            f"{tally.longest_s:.2f} s",
            f"{bound_s:.0f} s",
            tally.longest_s <= bound_s,
        ),
        *(
            Finding(
                f"{route[1:]}: passed, arrived",
                f"{tally.passed(route)}, {application.passed[route]}",
                f"at most {LIMIT}",
                tally.passed(route) <= application.passed[route] <= LIMIT,
            )
            for route in EXACT
        ),
        Finding(
            "reloads: applied, refused, half",
            f"{run.applied}, {run.refused}, {len(halves)} {halves or ''}",
            "0 half",
            not halves,
        ),
        Finding(
            "status at the end, tracebacks",
            f"{status}, {len(complaints)}",
            "0, 0",
            not status and not complaints,
        ),
    ]


async def _settled(subject: Subject, workers: int) -> set[str]:
    """Return what all workers answer, as soon as all are there again."""
    async with asyncio.timeout(30):
        await until(lambda: len(children(subject.pid)) == workers + 1)
        while True:
            try:
                return await _versions(subject.url)
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)
