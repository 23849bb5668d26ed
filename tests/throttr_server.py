"""A server that speaks Throttr's protocol 5: a gateway's own listener, in a process of its own."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Final

from tests.processes import PYTHON_PATH, OwnServer, ServerProcess

CONFIG: Final = """
listeners: [{{ throttr: {{ version: v5, size: {size} }}, bind: "127.0.0.1:{port}" }}]
admin: off
"""


class ThrottrServer(OwnServer):
    """A Throttr server of a test's own.

    Args:
        folder: its working directory; made if it is not there.
        size: bits of its numbers.
    """

    def __init__(self, folder: Path, size: int = 16) -> None:
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._size = size

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
        env = {"PYTHONPATH": PYTHON_PATH}
        self._process = ServerProcess(name, argv, self._folder, self._is_there, env)

    def _is_there(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True
