"""SIGTERM under load: all that had begun ends in order, and the store is told of everything."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Final

import aiohttp

from bench.chaos.subject import Application, Case, Finding, Subject, Tally, ask, load
from tests.servers import until

LIMIT: Final = 50_000
TIMEOUT_S: Final = 8
QUEUED: Final = 10
INTERVAL_S: Final = 1
"""How often an eventual policy tells the store."""
KINDS: Final = {
    "strict": "",
    "leased": ", consistency: leased, leased: { size: 10%, lifetime: 5s }",
    "eventual": ", consistency: eventual, eventual: { interval: 1s }",
}


def _text(upstream: str) -> str:
    up = f"upstream: {upstream}"
    routes = "".join(
        f"  /{name}: {{ {up}, limit: {LIMIT}/d per all, algorithm: fixed_window{more} }}\n"
        for name, more in KINDS.items()
    )
    return (
        f"domain: drain\nroutes:\n{routes}"
        f"  /queue: {{ {up}, limit: 5/s per all, queue: {{ max: 50, max_wait: 20s }} }}\n"
        f"  /talk: {{ {up}, limit: 3 at once per all }}\n"
        f"  /download: {{ {up} }}\n"
    )


async def _count(subject: Subject, name: str) -> int:
    """What the store says has passed, by two more requests.

    An eventual policy hears of the store's count after its first request of a key.
    """
    url, asked = f"{subject.url}/{name}", 2
    async with aiohttp.ClientSession() as session:
        async with session.post(url):
            pass
        await asyncio.sleep(2 * INTERVAL_S + 0.5)
        async with session.post(url) as answer:
            return LIMIT - int(answer.headers["X-RateLimit-Remaining"]) - asked


async def _counts(case: Case, application: Application) -> list[Finding]:
    """Compare what the store says with what the upstream got."""
    found = []
    second = Subject(case, "second")
    second.write(_text(application.url))
    await second.start()
    for name in KINDS:
        passed = application.passed[f"/{name}"]
        count = await _count(second, name)
        text = f"{count}, {passed}"
        found.append(Finding(f"{name}: counted, passed", text, "equal", count == passed))
    await second.stop()
    return found


async def drain(case: Case) -> list[Finding]:
    """End a gateway under load; see the module."""
    tally, queued = Tally(), Tally()
    talking, may_end = asyncio.Event(), asyncio.Event()

    async def talk(url: str) -> int:
        """Keep a WebSocket open, and end it in order a second after the gateway was told."""
        number = 0
        async with aiohttp.ClientSession() as session, session.ws_connect(url + "/talk") as one:
            while not may_end.is_set():
                await one.send_str(str(number))
                if (await one.receive(timeout=10)).data != str(number):
                    return -1
                number += 1
                talking.set()
                await asyncio.sleep(0.02)
        return number

    async def download(url: str) -> int:
        async with aiohttp.ClientSession() as session, session.get(url + "/download") as answer:
            return len(await answer.read())

    async with Application(pause_s=0.03) as application:
        first = Subject(case, "first")
        first.write(_text(application.url), server=f", shutdown_timeout: {TIMEOUT_S}s")
        await first.start()
        assert first.server is not None
        process = first.server.process
        routes = [f"/{name}" for name in KINDS]
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            talks = group.create_task(talk(first.url))
            loaded = group.create_task(download(first.url))
            await asyncio.wait_for(talking.wait(), 10)
            async with load(first.url, routes, tally):
                await asyncio.sleep(1.5)
                turns = [
                    group.create_task(ask(session, first.url, "/queue", queued))
                    for _ in range(QUEUED)
                ]
                await until(lambda: application.passed["/queue"] >= 2)
                began = time.monotonic()
                process.send_signal(signal.SIGTERM)
                await asyncio.sleep(1)
                may_end.set()
            status = await asyncio.to_thread(process.wait, 60)
            took = time.monotonic() - began
            await asyncio.gather(*turns)
        complaints = first.complaints()
        found = [] if case.is_memory else await _counts(case, application)
    # After SIGTERM new connections are refused; those are no failures of what had begun.
    broken = tally.reasons.copy()
    refused = broken.pop("ClientConnectorError", 0)
    answered = sum(tally.passed(route) for route in routes)
    arrived = sum(application.passed[route] - 2 * (not case.is_memory) for route in routes)
    return [
        *found,
        Finding(
            "requests, passed, failed",
            f"{tally.total - refused}, {answered}, {dict(broken)}",
            "what had begun has ended",
            not set(broken) - {"ServerDisconnectedError", "ClientOSError"},
        ),
        Finding(
            "passed at clients, upstream", f"{answered}, {arrived}", "equal", answered == arrived
        ),
        Finding(
            "waiting requests that passed",
            f"{queued.passed('/queue')}",
            f"{QUEUED}",
            queued.passed("/queue") == QUEUED,
        ),
        Finding(
            "WebSocket, download",
            f"{talks.result()} echoes, {loaded.result()} bytes",
            "whole",
            talks.result() > 0 and loaded.result() == 102_400,
        ),
        Finding(
            "ended after, status",
            f"{took:.2f} s, {status}",
            f"{TIMEOUT_S} s, 0",
            took <= TIMEOUT_S + 1 and status == 0,
        ),
        Finding("tracebacks", str(len(complaints)), "0", not complaints),
    ]
