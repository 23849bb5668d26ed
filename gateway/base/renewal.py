"""Checks whether files have changed on disk, periodically and on request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from gateway.base.errors import UnusableFileError
from gateway.base.tasks import Background
from gateway.base.threads import in_thread

log = logging.getLogger(__name__)

INTERVAL_S: Final = 10.0
"""How often to check: tools renew certificates days before they expire."""


class Renewable(Protocol):
    """Objects made from files."""

    @property
    def paths(self) -> Sequence[Path]:
        """The files."""

    def renew(self) -> bool:
        """Read the files again if they have changed; blocks.

        Returns:
            Whether new ones are in use.

        Raises:
            UnusableFileError: they have changed and cannot be used; the previous ones stay in use.
        """


class Renewal:
    """Keeps objects that are made from files up to date.

    Args:
        users: the objects, in any order; each is renewed separately.
        renewed: called when one of them has new files in use.
        interval_s: how often to check.
        subject: what the files contain, for the log.
    """

    def __init__(
        self,
        users: Sequence[Renewable],
        renewed: Callable[[], None] = lambda: None,
        interval_s: float = INTERVAL_S,
        subject: str = "certificates",
    ) -> None:
        self._subject = subject
        self._users = users
        self._renewed = renewed
        self._interval_s = interval_s
        self._told = asyncio.Event()
        self._background = Background(self._run)

    def watch(self, users: Sequence[Renewable]) -> None:
        """Check these objects from now on, in place of those before; see `start`."""
        self._users = users
        self.start()

    @property
    def is_running(self) -> bool:
        """Whether files are being checked."""
        return self._background.is_running

    def start(self) -> None:
        """Start checking, if there is anything to check."""
        if any(user.paths for user in self._users):
            self._background.start()

    async def end(self) -> None:
        """Stop checking."""
        await self._background.end()

    def look_now(self) -> None:
        """Check now."""
        self._told.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._told.wait()
            except TimeoutError:
                pass
            self._told.clear()
            logged: set[str] = set()
            for user in self._users:
                await self._look_at(user, logged)

    async def _look_at(self, user: Renewable, logged: set[str]) -> None:
        """Renew one object; `logged` has the messages already logged for the same files."""
        files = ", ".join(map(str, dict.fromkeys(user.paths)))
        try:
            # Reading keys takes milliseconds, or as long as a network disk needs.
            if not await in_thread(user.renew):
                return
        except UnusableFileError as error:
            if error.message in logged:
                return
            logged.add(error.message)
            log.error(  # noqa: TRY400 - the message says it all
                "the previous %s stay in use, because the changed files cannot be used: %s",
                self._subject,
                error.message,
            )
        except Exception:
            # Whatever happened, the next check must take place.
            log.exception("%s cannot be checked: %s", self._subject, files)
        else:
            log.info("changed %s are now in use: %s", self._subject, files)
            self._renewed()
