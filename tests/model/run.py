"""One run: a store, three limiter processes, and what a schedule says is done to them."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.base.clock import monotonic_us, wall_us
from gateway.base.errors import StoreError
from gateway.stores.base import Ask
from gateway.stores.opening import StoreMaker, find_store
from tests.faketime import wrong_clock
from tests.model.check import Course, Finding, decides_by_store, findings, violations
from tests.model.history import Notes, Span, read
from tests.model.limits import GATEWAYS, HELD, KEYS, LEASE_US, LIMITS, US
from tests.model.schedule import Fault, Schedule, schedule
from tests.model.stores import Store, deed, make
from tests.model.worker import DEADLINE_US
from tests.processes import PYTHON_PATH, ServerProcess

ENDING_S: Final = 15.0
"""How long a process may take to see through what is under way."""
WELL_S: Final = 2.0
"""How long a run goes on for at least after its last fault."""
RECOVERY_S: Final = 60.0
"""And at most: a process that does not decide by the store again by then never does."""
WALL_US: Final = 2_000
"""How far the machine's wall clock may be adjusted during a run."""


class Report(NamedTuple):
    """How a run went.

    Attributes:
        plan: what was done.
        wrong: the promises that were not kept, in words.
        findings: how each key fared.
        asked, alone: how many asks there were, and how many of them were decided alone.
    """

    plan: Schedule
    wrong: list[str]
    findings: list[Finding]
    asked: int
    alone: int

    @property
    def passed(self) -> int:
        """What all that the store let through cost."""
        return sum(each.passed for each in self.findings)

    @property
    def loose(self) -> list[str]:
        """Limits of which less passed for every key than they allow in any window.

        If there are some the run has shown little: it was the load that bounded what passed.
        """
        closest: dict[str, int] = {}
        for (scope, _), _, most, _ in self.findings:
            closest[scope] = max(closest.get(scope, most), most)
        return sorted({*LIMITS} - {scope for scope, most in closest.items() if most >= 0})

    def __str__(self) -> str:
        plan = self.plan
        over = [
            f"{'/'.join(each.name)} {each.excess} of {each.slack}"
            for each in self.findings
            if each.excess > 0
        ]
        asked = f"{self.asked} asked, {self.alone} alone, {self.passed} passed"
        excess = ", ".join(over) or "none"
        lines = [
            f"{plan.store} --seed {plan.seed} ({plan.on_store_error}): {asked}; excess: {excess}"
        ]
        if self.wrong:
            lines += map(str, sorted((*plan.of_store, *plan.of_gateways)))
            lines += [f"WRONG: {each}" for each in self.wrong]
        return "\n".join(lines)


class Gateways:
    """The limiter processes of a run.

    Args:
        url: of their store.
        plan: how their clocks are and what they do without the store.
        folder: where they note what they decide.
    """

    def __init__(self, url: str, plan: Schedule, folder: Path) -> None:
        self._url = url
        self._plan = plan
        self._folder = folder
        self._starts = 0
        self._files: list[Path] = []
        self._names = [""] * GATEWAYS
        self._running: list[ServerProcess | None] = [None] * GATEWAYS
        self.stopped: dict[str, list[Span]] = {}
        self.wrong: list[str] = []

    def start(self, place: int) -> None:
        """Start one, and return when its store is ready."""
        self._starts += 1
        name = f"gateway-{place}-{self._starts}"
        file = self._folder / name
        seed = self._plan.seed * 1000 + self._starts
        words = (self._url, str(seed), self._plan.on_store_error, str(file))
        out = self._folder / f"{name}.out"
        self._files.append(file)
        self._names[place] = name
        self._running[place] = ServerProcess(
            name,
            [sys.executable, "-m", "tests.model.worker", *words],
            self._folder,
            lambda: "ready" in out.read_text(),
            {"PYTHONPATH": PYTHON_PATH, **wrong_clock(self._plan.clocks[place])},
        )

    @contextmanager
    def killed(self, target: int) -> Iterator[None]:
        """One dies; after a while another is started in its place."""
        place = target % GATEWAYS
        process = self._process(place)
        process.process.kill()
        process.process.wait(ENDING_S)
        self._look_at(process)
        yield
        self.start(place)

    @contextmanager
    def paused(self, target: int) -> Iterator[None]:
        """One does not run for a while."""
        place = target % GATEWAYS
        process = self._process(place)
        first = monotonic_us()
        process.freeze()
        try:
            yield
        finally:
            process.thaw()
            spans = self.stopped.setdefault(self._names[place], [])
            spans.append(Span(first, monotonic_us()))

    def wait_until_well(self, settled: int) -> None:
        """Return when each that lives decides by the store again, or has had the time to."""
        latest = time.monotonic() + RECOVERY_S
        time.sleep(WELL_S)
        while time.monotonic() < latest and not all(
            decides_by_store(read(self._folder / name), settled) for name in self._names
        ):
            time.sleep(0.5)

    def end(self) -> list[str]:
        """Tell all to end, and wait until they have; the names of those that lived."""
        for process in self._running:
            if process is not None and process.process.poll() is None:
                process.process.terminate()
        for process in self._running:
            if process is None:
                continue
            try:
                status = process.process.wait(ENDING_S)
            except Exception:  # noqa: BLE001 - whatever it is, it must not live on
                process.process.kill()
                process.process.wait()
                self.wrong.append(f"{process.name} hung at its end")
            else:
                if status:
                    self.wrong.append(f"{process.name} ended with {status}")
            self._look_at(process)
        return self._names

    def notes(self) -> list[Notes]:
        """What all of them have noted."""
        return [read(file) for file in self._files]

    def _process(self, place: int) -> ServerProcess:
        process = self._running[place]
        assert process is not None, "it was started"
        return process

    def _look_at(self, process: ServerProcess) -> None:
        """What no process may say, however it ends."""
        errors = process.stderr
        for word in ("Traceback", "never awaited", "never retrieved", "s3cret"):
            if word in errors:
                self.wrong.append(f"{process.name} said {word}:\n{errors[-3000:]}")


def perform(store: str, seed: int, folder: Path, seconds: float) -> Report:
    """Make the run that a seed stands for and check it.

    Args:
        store: a name of `tests.model.schedule.STORES`.
        seed: of the schedule.
        folder: where servers and processes keep their files.
        seconds: how long faults are begun for.
    """
    plan = schedule(store, seed, seconds)
    folder.mkdir(parents=True, exist_ok=True)
    servers = make(store, folder / "store")
    with ExitStack() as ending:
        ending.callback(servers.stop)
        servers.start()
        gateways = Gateways(servers.url, plan, folder)
        ending.callback(gateways.end)
        wall = wall_us() - monotonic_us()
        starting = [threading.Thread(target=gateways.start, args=(n,)) for n in range(GATEWAYS)]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        failed = _do(plan, servers, gateways)
        settled = monotonic_us()
        gateways.wait_until_well(settled)
        survivors = gateways.end()
        notes = gateways.notes()
        course = Course(
            limits=LIMITS,
            gateways=GATEWAYS,
            deadline_us=DEADLINE_US,
            on_store_error=plan.on_store_error,
            wall_us=Span(wall - WALL_US, wall + WALL_US),
            is_sharded=store == "cluster",
            losses=servers.losses,
            stopped=gateways.stopped,
            settled=settled,
            survivors=survivors,
        )
        wrong = [*failed, *gateways.wrong, *violations(course, notes)]
        time.sleep(LEASE_US / US)
        wrong += _left_behind(servers)
        asked = [one for each in notes for one in each.asked]
        alone = sum(one.alone for one in asked)
        return Report(plan, wrong, findings(course, notes), len(asked), alone)


def _do(plan: Schedule, servers: Store[Any], gateways: Gateways) -> list[str]:
    """Carry out both series at the same time; what could not be done."""
    failed: list[str] = []
    begin = time.monotonic()

    def series(faults: Sequence[Fault], owner: Store[Any] | Gateways) -> None:
        for fault in faults:
            time.sleep(max(begin + fault.at_s - time.monotonic(), 0))
            try:
                with deed(owner, fault.what)(fault.target):
                    time.sleep(fault.lasts_s)
            except Exception as error:  # noqa: BLE001 - a thread's failure is the run's
                failed.append(f"{type(error).__name__} in {fault}: {error}")
                break

    threads = [
        threading.Thread(target=series, args=each)
        for each in ((plan.of_store, servers), (plan.of_gateways, gateways))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


def _left_behind(servers: Store[Any]) -> list[str]:
    """What must be gone when all have ended and every lease is over."""
    wrong = []
    if without_end := servers.keys_without_end():
        wrong.append(f"{without_end} keys would live for ever")
    # What makes the store reads files, which a loop should not have to wait for.
    open_url = find_store(servers.url)
    for key, held in asyncio.run(_held(open_url, servers.url)).items():
        if held:
            wrong.append(f"{held} leases of {key} were leaked")
    return wrong


async def _held(open_url: StoreMaker, url: str) -> dict[str, int]:
    """For each identity how many leases its store says are held."""
    store = open_url(url, domain="model", deadline_us=US)
    await store.start()
    held = {}
    try:
        async with asyncio.timeout(ENDING_S):
            for key in KEYS:
                # Connections come in the background, one to each server.
                while key not in held:
                    try:
                        (verdict,) = await store.decide([Ask((HELD,), (key,), 0, 0)])
                        held[key] = HELD.count - verdict.decisions[0].remaining
                    except StoreError:
                        await asyncio.sleep(0.02)
    finally:
        await store.aclose()
    return held
