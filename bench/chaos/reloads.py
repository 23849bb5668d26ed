"""A hundred reloads under full load: no failed request, no lost count, no growth."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from typing import Final

import aiohttp

from bench.chaos.subject import (
    PIECE,
    PIECES,
    Application,
    Case,
    Finding,
    Subject,
    Tally,
    files,
    load,
    memory,
)
from tests.certificates import Authority
from tests.processes import free_port

RELOADS: Final = 100
WARM: Final = 40
"""The reload at which memory is measured first."""
GROWTH: Final = 2 << 20
"""What allocators of a process may do."""
LIMIT: Final = 500
ALGORITHMS: Final = ("token_bucket", "sliding_window_log", "sliding_window_counter", "fixed_window")


class _Changes:
    """The configurations."""

    def __init__(self, case: Case, subject: Subject, upstream: str) -> None:
        authority = Authority(case.folder)
        self._certificates = [authority.issue("127.0.0.1", "localhost") for _ in range(2)]
        self._subject = subject
        self._upstream = upstream
        self._folder = case.folder
        self.plain, self.tls, self.throttr, self.ratio = (free_port() for _ in range(4))
        self.trust = ssl.create_default_context(cafile=str(authority.file))

    def write(self, number: int) -> list[str]:
        """Write configuration `number`; return the URLs of listeners that it adds."""
        listen, urls = "", []
        if number % 3 == 0:
            listen += f", '127.0.0.1:{self.plain}'"
            urls.append(f"http://127.0.0.1:{self.plain}")
        if number % 4 < 2:
            cert, key = self._certificates[number % 2]
            listen += (
                f", {{ address: '127.0.0.1:{self.tls}', tls: {{ cert: {cert}, key: {key} }} }}"
            )
            urls.append(f"https://127.0.0.1:{self.tls}")
        if number % 5 < 3:
            listen += f", 'unix:{self._folder}/clients.sock'"
            urls.append("unix")
        systems = []
        if number % 6 < 3:
            systems.append(
                f"{{ throttr: {{ version: v5, size: 16 }}, bind: '127.0.0.1:{self.throttr}' }}"
            )
        if number % 7 < 3:
            systems.append(f"{{ ratio: {{ limit: 100/m }}, bind: '127.0.0.1:{self.ratio}' }}")
        up = f"upstream: {self._upstream}"
        routes = "".join(
            f"  /{name}: {{ {up}, limit: {LIMIT}/d burst {LIMIT} per all, algorithm: {name} }}\n"
            if name == "token_bucket"
            else f"  /{name}: {{ {up}, limit: {LIMIT}/d per all, algorithm: {name} }}\n"
            for name in ALGORITHMS
        )
        routes += "".join(
            f"  /extra-{one}: {{ respond: {{ status: 204 }}, limit: {1 + number}/s }}\n"
            for one in range(number % 5)
        )
        routes += (
            f"  /queue: {{ {up}, limit: 5/s per all, queue: {{ max: 50, max_wait: 20s }} }}\n"
            f"  /**: {{ {up}, limit: {200_000 + number}/d per all, algorithm: fixed_window }}\n"
        )
        listeners = f"listeners: [{', '.join(systems)}]\n"
        self._subject.write(f"{listeners}routes:\n{routes}", listen)
        return urls

    async def visit(self, urls: list[str], tally: Tally) -> None:
        """Send a request to each listener that was added."""
        for url in urls:
            began, status = time.monotonic(), 0
            connector: aiohttp.BaseConnector = aiohttp.TCPConnector(ssl=self.trust)
            if url == "unix":
                connector = aiohttp.UnixConnector(str(self._folder / "clients.sock"))
            base = "http://gateway.test" if url == "unix" else url
            try:
                async with (
                    aiohttp.ClientSession(connector=connector) as session,
                    session.post(base + "/free") as answer,
                ):
                    await answer.read()
                    status = answer.status
            except (aiohttp.ClientError, OSError) as error:
                tally.note("/free", 0, began, f"{url}: {error!r}")
                continue
            tally.note("/free", status, began)


async def _upload(url: str, pause_s: float) -> bool:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(PIECES):
            yield PIECE
            await asyncio.sleep(pause_s)

    async with (
        aiohttp.ClientSession() as session,
        session.post(url + "/upload", data=pieces()) as answer,
    ):
        return await answer.text() == str(len(PIECE) * PIECES)


async def _download(url: str) -> bool:
    async with aiohttp.ClientSession() as session, session.get(url + "/download") as answer:
        return await answer.read() == PIECE * PIECES


async def _talk(url: str, ended: asyncio.Event) -> int:
    """Keep a WebSocket open; return how many echoes came."""
    async with aiohttp.ClientSession() as session, session.ws_connect(url + "/talk") as socket:
        number = 0
        while not ended.is_set():
            await socket.send_str(str(number))
            message = await socket.receive(timeout=10)
            if message.data != str(number):
                raise AssertionError(f"the WebSocket was closed after {number}: {message}")
            number += 1
            await asyncio.sleep(0.02)
        return number


async def reloads(case: Case) -> list[Finding]:
    """Reload a hundred times; see the module."""
    tally, ended = Tally(), asyncio.Event()
    extra, queued = Tally(), Tally()
    slowest_s, sizes, opened = 0.0, {}, {}
    async with Application(pause_s=0.15) as application:
        subject = Subject(case)
        changes = _Changes(case, subject, application.url)
        changes.write(0)
        await subject.start()
        family = subject.family
        routes = [f"/{name}" for name in ALGORITHMS] + ["/free"] * 4
        began = time.monotonic()
        async with load(subject.url, routes, tally), asyncio.TaskGroup() as group:
            talk = group.create_task(_talk(subject.url, ended))
            upload = group.create_task(_upload(subject.url, 0.15))
            download = group.create_task(_download(subject.url))
            async with load(subject.url, ["/queue"], queued, clients=4):
                for number in range(1, RELOADS + 1):
                    urls = changes.write(number)
                    start = time.monotonic()
                    status, outcome = await subject.reload()
                    slowest_s = max(slowest_s, time.monotonic() - start)
                    if status != 200 or not outcome["applied"]:
                        raise AssertionError(f"reload {number}: {status} {outcome}")
                    await changes.visit(urls, extra)
                    if number in {WARM, RELOADS}:
                        sizes[number] = memory(subject.family)
                        opened[number] = files(subject.family)
            ended.set()
        took = time.monotonic() - began
        stayed = family == subject.family
        status = await subject.stop()
        complaints = subject.complaints()
    refill = 1 + int(took * LIMIT / 86_400)
    found = [
        Finding(
            "requests, failed",
            f"{tally.total + queued.total + extra.total}, "
            f"{len(tally.failures) + len(queued.failures) + len(extra.failures)}"
            f" {dict(tally.reasons + queued.reasons + extra.reasons) or ''}",
            "0 failed",
            not (tally.failures or queued.failures or extra.failures),
        )
    ]
    for name in ALGORITHMS:
        passed, asked = tally.passed(f"/{name}"), tally.counts[f"/{name}"].total()
        most = LIMIT + (refill if name == "token_bucket" else 0)
        found.append(
            Finding(
                f"{name}: passed of {asked}",
                str(passed),
                f"{LIMIT}" if most == LIMIT else f"{LIMIT} to {most}",
                asked > most >= passed >= LIMIT and application.passed[f"/{name}"] == passed,
            )
        )
    growth, processes = sizes[RELOADS] - sizes[WARM], len(family)
    return [
        *found,
        Finding(
            f"memory from reload {WARM} to {RELOADS}",
            f"{growth / (1 << 20):+.1f} MiB",
            f"{GROWTH * processes >> 20} MiB",
            growth < GROWTH * processes,
        ),
        Finding(
            "open files likewise",
            f"{opened[WARM]} to {opened[RELOADS]}",
            "+12",
            opened[RELOADS] - opened[WARM] <= 12,
        ),
        Finding(
            "WebSocket, upload, download",
            f"{talk.result()} echoes, {upload.result()}, {download.result()}",
            "whole",
            upload.result() and download.result(),
        ),
        Finding("slowest reload", f"{slowest_s * 1000:.0f} ms", "10 s", slowest_s < 10),
        Finding("same processes, status at the end", f"{stayed}, {status}", "True, 0", stayed),
        Finding("tracebacks", str(len(complaints)), "0", not complaints),
    ]
