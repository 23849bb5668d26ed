"""A server that speaks Throttr's protocol 5: a gateway's own listener, in a process of its own."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Final

from tests.processes import ROOT, ServerProcess, free_port

CONFIG: Final = """
listeners: [{{ throttr: {{ version: v5, size: {size} }}, bind: "127.0.0.1:{port}" }}]
admin: off
"""


class ThrottrServer:
    """A Throttr server of a test's own.

    Args:
        folder: its working directory; made if it is not there.
        size: bits of its numbers.
    """

    def __init__(self, folder: Path, size: int = 16) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._size = size
        self._process: ServerProcess | None = None
        self._starts = 0
        self.port = free_port()

    @property
    def url(self) -> str:
        """What a store connects to."""
        return f"throttr+v5://127.0.0.1:{self.port}?size={self._size}"

    def start(self) -> None:
        """Start, and return when it can be connected to."""
        self._starts += 1
        name = f"throttr-{self.port}-{self._starts}"
        path = self._folder / f"{name}.yaml"
        path.write_text(CONFIG.format(size=self._size, port=self.port))
        argv = [sys.executable, "-m", "gateway", "run", str(path)]
        env = {"PYTHONPATH": str(ROOT)}
        self._process = ServerProcess(name, argv, self._folder, self._is_there, env)

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
        assert self._process is not None, "the server was not started"
        self._process.freeze()

    def thaw(self) -> None:
        """Go on after `freeze`."""
        assert self._process is not None, "the server was not started"
        self._process.thaw()

    def _is_there(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True
