"""Real Redis servers for the tests: started on a free port, killed, frozen and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.processes import ServerProcess, free_port

WAIT_S: Final = 15.0
COMMANDS: Final = ("redis-server", "valkey-server")


def _server_command() -> str:
    """The server named by the environment, or the first one installed."""
    for command in (os.environ.get("REDIS_SERVER", ""), *COMMANDS):
        if command and (found := shutil.which(command)):
            return found
    raise FileNotFoundError(f"none of {COMMANDS} is installed, and REDIS_SERVER names none")


async def until(condition: Callable[[], bool], within_s: float = WAIT_S) -> None:
    """Return as soon as something is true, and fail if it does not become so."""
    async with asyncio.timeout(within_s):
        # What is waited for happens in other processes, which set no event here.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class RedisServer:
    """A Redis or Valkey server of a test's own, without persistence.

    Args:
        folder: its working directory; made if it is not there.
        options: words of its configuration, such as `"--maxmemory", "2mb"`.
        password: what clients must know; none if empty.
    """

    def __init__(self, folder: Path, options: Sequence[str] = (), password: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._options = tuple(options)
        self._password = password
        self._process: ServerProcess | None = None
        self._starts = 0
        self.port = free_port()

    @property
    def url(self) -> str:
        """What a store connects to."""
        credentials = f":{self._password}@" if self._password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None, "the server was not started"
        return self._process.process.pid

    def client(self) -> redis.Redis:
        """A client for looking and meddling; answers are bytes."""
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            password=self._password or None,
            # What the server says now is what a test wants to know.
            retry=Retry(NoBackoff(), 0),
        )

    def start(self, *, is_loading_enough: bool = False) -> None:
        """Start, and return when commands are answered, or at least refused for loading."""
        auth = ("--requirepass", self._password) if self._password else ()
        argv = [
            *(_server_command(), "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--save", "", "--appendonly", "no", "--dir", str(self._folder)),
            *auth,
            *self._options,
        ]

        def is_ready() -> bool:
            try:
                with contextlib.closing(self.client()) as client:
                    answer: Any = client.ping()
                    return bool(answer)
            except redis.BusyLoadingError:
                return is_loading_enough
            except redis.RedisError:
                return False

        self._starts += 1
        name = f"redis-{self._starts}"
        self._process = ServerProcess(name, argv, self._folder, is_ready)

    def stop(self) -> None:
        """End in order, if it runs."""
        if self._process is not None and self._process.process.poll() is None:
            self._process.stop()
        self._process = None

    def kill(self) -> None:
        """End at once, without a word to clients."""
        assert self._process is not None, "the server was not started"
        self._process.process.kill()
        self._process.process.wait(20)
        self._process = None

    def freeze(self) -> None:
        """Stop working, with all connections open."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on after `freeze`."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Start anew, empty, on the same port."""
        self.stop()
        self.start()

    def keys_without_ttl(self) -> list[bytes]:
        """Keys that would live for ever."""
        with contextlib.closing(self.client()) as client:
            keys: list[bytes] = list(client.scan_iter(count=1000))
            return [key for key in keys if client.pttl(key) == -1]
