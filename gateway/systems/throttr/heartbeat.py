"""Heartbeats in a Throttr server: gateways count each other, and check that it still answers.

Each gateway of a domain takes one of the numbered places: a counter that expires after a few
beats, and whose quota is a number that only its owner knows. The number of places taken is the
number of gateways. A connection on which a beat is not answered before the next one is dropped.
"""

from __future__ import annotations

import secrets
from typing import Final

from gateway.base.errors import StoreError
from gateway.stores.heartbeat import Heartbeat, answer_within
from gateway.systems.throttr.codec import PATCH, TTL
from gateway.systems.throttr.codec_v5 import (
    OK,
    Answer,
    Counter,
    ThrottrRequest,
    Ttl,
    insert,
    largest,
    purge,
    query,
    update,
)
from gateway.systems.throttr.pipe import ThrottrPipe
from gateway.systems.throttr.server_connection import ThrottrServerConnection

PLACES: Final = 64
"""The most gateways that are counted."""
_MS: Final = 3
_SECONDS: Final = 4


class ThrottrHeartbeat(Heartbeat):
    """Sends heartbeats over a connection.

    Args:
        domain: the namespace of this deployment's keys.
        size: bits of a number.
        heartbeat_s: seconds between two beats.
        link: the connection.
    """

    def __init__(
        self, domain: str, size: int, heartbeat_s: float, link: ThrottrServerConnection
    ) -> None:
        super().__init__(heartbeat_s)
        self._size = size
        self._link = link
        self._keys = [f"{domain}\2{place}".encode() for place in range(PLACES)]
        self._looks = [ThrottrRequest(query(key), is_query=True) for key in self._keys]
        self._secret = 1 + secrets.randbelow(largest(size))
        self._lifetime_of_place = _lifetime_of_place(self.silence_s, size)
        self._place: int | None = None

    async def beat(self) -> bool:
        """Keep a place and count the others; return whether the server answered."""
        try:
            pipe = self._link.pipe
        except StoreError:
            return False
        return await answer_within(self.heartbeat_s, pipe, lambda: self._count(pipe)) is not None

    async def sign_off(self) -> None:
        """Give up the place."""
        if self._place is not None:
            request = purge(self._keys[self._place])
            await self._link.pipe.call([ThrottrRequest(request)])

    async def _count(self, pipe: ThrottrPipe) -> int:
        """Keep a place, or take the first free one; return how many are taken."""
        taken = await pipe.call(self._looks)
        place = self._place
        if place is not None and self._is_mine(taken[place]):
            life = self._lifetime_of_place.value
            request = update(self._size, TTL, PATCH, life, self._keys[place])
            await pipe.call([ThrottrRequest(request)])
        else:
            self._place = await self._take(pipe, taken)
        others = sum(
            isinstance(each, Counter) for at, each in enumerate(taken) if at != self._place
        )
        self.gateways = 1 + others
        return self.gateways

    async def _take(self, pipe: ThrottrPipe, taken: list[Answer]) -> int | None:
        for place, found in enumerate(taken):
            if isinstance(found, Counter):
                continue
            request = insert(self._size, self._secret, self._lifetime_of_place, self._keys[place])
            (answer,) = await pipe.call([ThrottrRequest(request)])
            if answer == OK:
                return place
            taken[place] = Counter(0, self._lifetime_of_place)
        return None

    def _is_mine(self, found: Answer) -> bool:
        return isinstance(found, Counter) and found.quota == self._secret


def _lifetime_of_place(seconds: float, size: int) -> Ttl:
    """Return how long a place lasts without a beat: milliseconds if they fit, else seconds."""
    ms = max(round(seconds * 1000), 1)
    if ms <= largest(size):
        return Ttl(_MS, ms)
    return Ttl(_SECONDS, min(-(-ms // 1000), largest(size)))
