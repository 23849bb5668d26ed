"""Watches the files of a configuration, and asks for a reload when they have changed.

It reads the files once a second and compares their content. The system could report changes
(inotify), but not those on network file systems and on some volumes of containers; and to see that
a file was renamed over, or that Kubernetes has switched the symlink `..data` of a ConfigMap, one
would have to watch every folder and symlink on the path. Reading a file of 100 KB takes a tenth of
a millisecond, in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway.base.clock import US
from gateway.base.tasks import Background
from gateway.base.threads import in_thread

log = logging.getLogger(__name__)


class Settling:
    """Decides from successive digests when content has changed and is complete. Pure.

    A program that writes a file may be interrupted at any point, so what was found must be found
    again at the next look. What was reported once is not reported again, valid or not.

    Args:
        known: the digest of what is in force.
    """

    def __init__(self, known: bytes) -> None:
        self.known = known
        self._last = known

    def is_due(self, digest: bytes) -> bool:
        """Return whether to reload, given the digest of what is there now."""
        is_settled = digest == self._last
        self._last = digest
        if not is_settled or digest == self.known:
            return False
        self.known = digest
        return True


class Watcher:
    """Asks for a reload when files have changed.

    Args:
        digest: returns the digest of what is there now; blocks.
        reload: reloads the configuration.
        known: the digest of what is in force.
    """

    def __init__(
        self, digest: Callable[[], bytes], reload: Callable[[], Awaitable[object]], known: bytes
    ) -> None:
        self._digest = digest
        self._reload = reload
        self._settling = Settling(known)
        self._interval_us: int | None = None
        self._is_on = asyncio.Event()
        self._background = Background(self._run)

    def start(self, interval_us: int | None) -> None:
        """Start; None to look at nothing yet."""
        self.look_every(interval_us)
        self._background.start()

    def look_every(self, interval_us: int | None) -> None:
        """Change how often to look; None to stop looking."""
        self._interval_us = interval_us
        if interval_us is None:
            self._is_on.clear()
        else:
            self._is_on.set()

    def note(self, digest: bytes) -> None:
        """Record what was read for a reload that something else asked for."""
        self._settling.known = digest

    @property
    def is_looking(self) -> bool:
        """Whether it looks at the files from time to time."""
        return self._is_on.is_set()

    async def end(self) -> None:
        """Stop."""
        await self._background.end()

    async def _run(self) -> None:
        while True:
            await self._is_on.wait()
            await asyncio.sleep((self._interval_us or US) / US)
            if self._interval_us is None:
                continue
            try:
                if self._settling.is_due(await in_thread(self._digest)):
                    await self._reload()
            except Exception:
                # Whatever happened, the next look must take place.
                log.exception("the files of the configuration cannot be watched")
