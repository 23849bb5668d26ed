"""Signs of life in a Throttr server: gateways count each other, and see that it still answers.

Each gateway of a domain takes one of some numbered places: a counter that lives for a few beats,
whose quota is a number that only its owner knows. How many places are taken is how many gateways
there are. A connection on which a beat is not answered by the next one leads nowhere and is
dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import Final

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.base.tasks import Background
from gateway.systems.throttr import requests_v5 as words
from gateway.systems.throttr.pipe import ThrottrPipe
from gateway.systems.throttr.requests_v5 import Answer, Counter, ThrottrRequest, Ttl
from gateway.systems.throttr.server_connection import ThrottrServerConnection

HEARTBEAT_S: Final = 2.0
MISSED_BEATS: Final = 3
"""After so many heartbeats without a word a gateway counts as gone."""
PLACES: Final = 64
"""More gateways than these are not counted."""
SOON_S: Final = 0.05
_MS: Final = 3
_SECONDS: Final = 4


class ThrottrHeartbeat:
    """Beats on a link.

    Args:
        domain: the namespace of this deployment's keys.
        size: bits of a number.
        heartbeat_s: seconds between two beats.
        link: the connection.

    Attributes:
        gateways: how many gateways of the domain there are, as last seen; at least 1.
    """

    def __init__(
        self, domain: str, size: int, heartbeat_s: float, link: ThrottrServerConnection
    ) -> None:
        self.gateways = 1
        self._size = size
        self._heartbeat_s = heartbeat_s
        self._link = link
        self._keys = [f"{domain}\2{place}".encode() for place in range(PLACES)]
        self._looks = [ThrottrRequest(words.query(key), is_query=True) for key in self._keys]
        self._secret = 1 + secrets.randbelow(words.largest(size))
        self._life = _life(heartbeat_s * MISSED_BEATS, size)
        self._place: int | None = None
        self._beating = Background(self._beat)

    def start(self) -> None:
        """Begin to beat."""
        self._beating.start()

    async def aclose(self) -> None:
        """Stop, and leave the place."""
        if not self._beating.is_running:
            return
        await self._beating.end()
        if self._place is not None:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(self._heartbeat_s / 4):
                    await self._link.pipe.call(
                        [ThrottrRequest(words.purge(self._keys[self._place]))]
                    )

    async def _beat(self) -> None:
        while True:
            is_heard = False
            with contextlib.suppress(StoreError):
                pipe = self._link.pipe
                try:
                    async with asyncio.timeout(self._heartbeat_s):
                        await self._count(pipe)
                    is_heard = True
                except TimeoutError:
                    pipe.drop(StoreUnavailable("the store stopped answering", "stalled"))
            # As soon as there is a connection, not a whole beat later.
            pause_s = self._heartbeat_s if is_heard else min(self._heartbeat_s, SOON_S)
            await asyncio.sleep(pause_s)

    async def _count(self, pipe: ThrottrPipe) -> None:
        """Keep a place, or take the first free one, and see how many others are taken."""
        taken = await pipe.call(self._looks)
        place = self._place
        if place is not None and self._is_mine(taken[place]):
            life = self._life.value
            update = words.update(self._size, words.TTL, words.PATCH, life, self._keys[place])
            await pipe.call([ThrottrRequest(update)])
        else:
            self._place = await self._take(pipe, taken)
        others = sum(
            isinstance(each, Counter) for at, each in enumerate(taken) if at != self._place
        )
        self.gateways = 1 + others

    async def _take(self, pipe: ThrottrPipe, taken: list[Answer]) -> int | None:
        for place, found in enumerate(taken):
            if isinstance(found, Counter):
                continue
            insert = words.insert(self._size, self._secret, self._life, self._keys[place])
            (answer,) = await pipe.call([ThrottrRequest(insert)])
            if answer == words.OK:
                return place
            taken[place] = Counter(0, self._life)
        return None

    def _is_mine(self, found: Answer) -> bool:
        return isinstance(found, Counter) and found.quota == self._secret


def _life(seconds: float, size: int) -> Ttl:
    """How long a place is kept without a beat: seconds, or milliseconds where they fit."""
    ms = max(round(seconds * 1000), 1)
    if ms <= words.largest(size):
        return Ttl(_MS, ms)
    return Ttl(_SECONDS, min(-(-ms // 1000), words.largest(size)))
