"""What every part of `bench.changing` needs: a gateway, an application, clients, findings."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import aiohttp
from aiohttp import web

from tests.processes import PYTHON_PATH, ServerProcess, answers, free_port
from tests.workers.family import children

PIECE: Final = b"x" * 1024
PIECES: Final = 100


class Case(NamedTuple):
    """How a part is to be run.

    Attributes:
        folder: a folder of its own.
        workers: how many workers the gateway has.
        store: the URL of its store.
        seconds: how long processes are killed.
        seed: decides the order of random events.
    """

    folder: Path
    workers: int
    store: str
    seconds: float
    seed: int

    @property
    def is_memory(self) -> bool:
        """Whether the counts are in the gateway."""
        return self.store == "memory://"


class Finding(NamedTuple):
    """What was found, beside what was promised."""

    what: str
    found: str
    promised: str
    is_kept: bool


class Subject:
    """The gateway.

    Args:
        case: how it runs.
        name: the stem of its file.
        admin: the port of its admin listener; a free one if 0.
    """

    def __init__(self, case: Case, name: str = "gateway", admin: int = 0) -> None:
        self.port, self.admin = free_port(), admin or free_port()
        self.file = case.folder / f"{name}.yaml"
        self._case = case
        self.server: ServerProcess | None = None

    @property
    def pid(self) -> int:
        """Its process, or its supervisor."""
        assert self.server is not None
        return self.server.pid

    @property
    def family(self) -> list[int]:
        """All its processes."""
        return [self.pid, *children(self.pid)]

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"http://127.0.0.1:{self.port}"

    def write(self, text: str, listen: str = "", server: str = "", deadline: str = "5s") -> None:
        """Write its file; `listen` has further listeners, `server` further settings."""
        case = self._case
        head = (
            f"listen: ['127.0.0.1:{self.port}'{listen}]\nadmin: 127.0.0.1:{self.admin}\n"
            f"server: {{ workers: {case.workers}{server} }}\n"
            f"store: {{ url: '{case.store}', deadline: {deadline} }}\n"
        )
        self.file.write_text(head + text)

    async def start(self) -> None:
        """Start it, and return when it is ready."""
        argv = [sys.executable, "-m", "gateway", "run", str(self.file)]
        self.server = await asyncio.to_thread(
            ServerProcess,
            self.file.stem,
            argv,
            self.file.parent,
            lambda: answers(self.admin, "/readyz"),
            {"PYTHONPATH": PYTHON_PATH},
        )

    async def reload(self) -> tuple[int, dict[str, Any]]:
        """Ask for a reload; the status is 0 if there is no answer."""
        url = f"http://127.0.0.1:{self.admin}/reload"
        timeout = aiohttp.ClientTimeout(total=40)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(url, json={}) as answer,
            ):
                return answer.status, await answer.json()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return 0, {}

    async def stop(self) -> int:
        """End it in order, and return its exit status."""
        assert self.server is not None
        return await asyncio.to_thread(self.server.stop)

    def complaints(self) -> list[str]:
        """Lines of its output that no part expects."""
        assert self.server is not None
        words = ("Traceback", '"traceback"', "never awaited", "never retrieved")
        lines = (self.server.stdout + self.server.stderr).splitlines()
        return [line for line in lines if any(word in line for word in words)]


def memory(pids: list[int]) -> int:
    """The resident memory of processes, in bytes."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in pids)


def files(pids: list[int]) -> int:
    """How many files processes have open."""
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


@dataclass
class Tally:
    """What clients were answered.

    Attributes:
        counts: of each route, how often each status came; 0 stands for no answer.
        longest_s: the longest wait for an answer.
        failures: when each failure was seen, by `time.monotonic`.
        reasons: what went wrong how often.
    """

    counts: dict[str, Counter[int]] = field(default_factory=dict)
    longest_s: float = 0.0
    failures: list[float] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def note(self, route: str, status: int, began: float, reason: str = "") -> None:
        """Note an answer."""
        now = time.monotonic()
        self.counts.setdefault(route, Counter())[status] += 1
        self.longest_s = max(self.longest_s, now - began)
        if status in {0, *range(500, 600)}:
            self.failures.append(now)
            self.reasons[reason or str(status)] += 1

    def passed(self, route: str) -> int:
        """How many requests of a route passed."""
        return self.counts.get(route, Counter())[200]

    @property
    def total(self) -> int:
        """How many there were in all."""
        return sum(one.total() for one in self.counts.values())


async def ask(session: aiohttp.ClientSession, url: str, route: str, tally: Tally) -> int:
    """Send one request, and note what came of it.

    POST, because aiohttp's client and the gateway repeat others when a connection is lost: a
    failure would not be seen.
    """
    began, status, reason = time.monotonic(), 0, ""
    try:
        async with session.post(url + route) as answer:
            await answer.read()
            status = answer.status
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        reason = type(error).__name__
    tally.note(route, status, began, reason)
    return status


@asynccontextmanager
async def load(
    url: str, routes: list[str], tally: Tally, clients: int = 12, pause_s: float = 0.002
) -> AsyncIterator[None]:
    """Ask for all routes while the body runs; a third of the clients connect for each request.

    Each client asks until its request has been answered, so that none is cut off by the load.
    """
    is_over = False

    async def client(number: int) -> None:
        one_each = number % 3 == 0
        connector = aiohttp.TCPConnector(limit=1, force_close=one_each)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            turn = number
            while not is_over:
                turn += 1
                await ask(session, url, routes[turn % len(routes)], tally)
                await asyncio.sleep(pause_s)

    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            group.create_task(client(number))
        try:
            yield
        finally:
            is_over = True


class Application:
    """The upstream: answers, echoes WebSockets, and sends and receives slowly.

    Attributes:
        passed: how many requests of each path have arrived.
        pause_s: how long the slow path rests between two pieces.
    """

    def __init__(self, pause_s: float = 0.1) -> None:
        self.passed: Counter[str] = Counter()
        self.pause_s = pause_s
        self.url = ""
        server = web.Server(self._answer, access_log=None)
        # What is held need not end.
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.passed[request.path] += 1
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._echo(request)
        if request.path == "/download":
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(PIECES):
                await response.write(PIECE)
                await asyncio.sleep(self.pause_s)
            await response.write_eof()
            return response
        if request.path.startswith("/held"):
            await asyncio.sleep(3600)
        return web.Response(text=str(len(await request.read())))

    @staticmethod
    async def _echo(request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                await socket.send_str(message.data)
        return socket


def kill(pid: int, number: signal.Signals) -> bool:
    """Send a signal; returns False if there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
