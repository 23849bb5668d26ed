"""Looks whether certificates have changed on the disk, now and then and when told to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from gateway.base.tasks import Background
from gateway.net.tls.files import TlsFileError

log = logging.getLogger(__name__)

INTERVAL_S: Final = 10.0
"""How often is looked: what renews certificates does so days before they end."""


class Renewable(Protocol):
    """What is made of files."""

    @property
    def paths(self) -> Sequence[Path]:
        """The files."""

    def renew(self) -> bool:
        """As `Renewed.renew`."""


class Renewal:
    """Keeps several users of files up to date.

    Args:
        users: in any order; each is renewed by itself.
        renewed: called when one of them has new files in use.
        interval_s: how often to look.
    """

    def __init__(
        self,
        users: Sequence[Renewable],
        renewed: Callable[[], None],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._users = users
        self._renewed = renewed
        self._interval_s = interval_s
        self._told = asyncio.Event()
        self._background = Background(self._run)

    @property
    def is_running(self) -> bool:
        """Whether files are looked at."""
        return self._background.is_running

    def start(self) -> None:
        """Begin to look, if there is anything to look at."""
        if any(user.paths for user in self._users):
            self._background.start()

    async def end(self) -> None:
        """Look no more."""
        await self._background.end()

    def look_now(self) -> None:
        """Do not wait for the next time."""
        self._told.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._told.wait()
            except TimeoutError:
                pass
            self._told.clear()
            told: set[str] = set()
            for user in self._users:
                await self._look_at(user, told)

    async def _look_at(self, user: Renewable, told: set[str]) -> None:
        """Renew one; what is in `told` was said of another that uses the same files."""
        files = ", ".join(map(str, dict.fromkeys(user.paths)))
        try:
            # Reading keys takes milliseconds, or as long as a network's disk likes.
            if not await asyncio.to_thread(user.renew):
                return
        except TlsFileError as error:
            if error.message in told:
                return
            told.add(error.message)
            log.error(  # noqa: TRY400 - the message says it all
                "the certificates before stay in use, for the changed ones will not do: %s",
                error.message,
            )
        except Exception:
            # The next look must come, whatever this one was.
            log.exception("certificates cannot be looked at: %s", files)
        else:
            log.info("changed certificates are in use: %s", files)
            self._renewed()
