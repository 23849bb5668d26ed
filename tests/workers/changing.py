"""A gateway whose configuration is written anew while it runs."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import requests

from tests.conftest import StartGateway
from tests.e2e.raw import get
from tests.e2e.signs import log_lines
from tests.processes import Gateway
from tests.workers.family import wait_until


class Changing:
    """A gateway whose configuration is written anew.

    Args:
        start: starts it.
        folder: where its file is.
        config: the first one.
    """

    def __init__(self, start: StartGateway, folder: Path, config: str) -> None:
        self.gateway: Gateway = start(config)
        self.file = folder / f"gateway-{self.gateway.port}.yaml"
        self._head = "".join(self.file.read_text().splitlines(keepends=True)[:2])

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        return self.gateway.server.pid

    def write(self, config: str, head: str = "") -> None:
        """Change the file; `head` in place of the addresses."""
        self.file.write_text((head or self._head) + config)

    def reload(self, config: str, head: str = "") -> dict[str, Any]:
        """Change the file, ask for a reload, and return what came of it."""
        self.write(config, head)
        return self.ask()

    def ask(self, admin_url: str = "") -> dict[str, Any]:
        """Ask for a reload, and return what came of it."""
        url = f"{admin_url or self.gateway.admin_url}/reload"
        done = requests.post(url, headers={"Content-Type": "application/json"}, timeout=40)
        answer: dict[str, Any] = done.json()
        return answer

    def ask_in_background(self, outcomes: list[dict[str, Any]]) -> threading.Thread:
        """The same, without a wait."""
        thread = threading.Thread(target=lambda: outcomes.append(self.ask()))
        thread.start()
        return thread

    def signal(self) -> None:
        """Ask for a reload by SIGHUP, and return when the supervisor has taken note of it."""
        self.gateway.server.signal(signal.SIGHUP)
        wait_until(lambda: not _pending(self.pid) & 1, "the signal does not arrive")

    def wait_until_sent(self) -> None:
        """Until a configuration was sent to all processes, and one of them has not answered."""
        wait_until(lambda: _has_parcel(self.pid), "no configuration is on its way")

    def says(self, text: str) -> int:
        """How many lines of the log have a message with this text."""
        return sum(text in line.get("message", "") for line in log_lines(self.gateway))

    def bodies(self, times: int = 40) -> set[bytes]:
        """What new clients get, of whichever worker."""
        return {get(self.gateway.port).body for _ in range(times)}


def _pending(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(
        int(line.split()[1], 16)
        for line in status.splitlines()
        if line.startswith(("SigPnd:", "ShdPnd:"))
    )


def _has_parcel(pid: int) -> bool:
    files = Path(f"/proc/{pid}/fd").iterdir()
    return any("parcel" in str(one.readlink()) for one in files if one.is_symlink())
