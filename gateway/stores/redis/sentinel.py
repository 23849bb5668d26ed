"""The address of the primary that Redis Sentinel names.

All Sentinels are asked concurrently, and the answer with the latest configuration is used: a
Sentinel that was cut off from the others may still name a primary that was replaced. The server
they name is asked for its role before it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import hiredis

from gateway.base.errors import StoreError, StoreUnavailable
from gateway.stores.redis.address import RedisAddress
from gateway.stores.redis.pipe import Pipe, open_pipe

ANSWER_TIMEOUT_S: Final = 0.5
WATCH_S: Final = 1.0
"""How often the Sentinels are asked whether the primary is still the same."""


class _NamedPrimary(NamedTuple):
    """The primary that a Sentinel names; the latest configuration is the greatest."""

    epoch: int
    host: str
    port: int


class Sentinels:
    """A `ServerPlace`: the address of the primary of a service.

    Args:
        sentinels: the addresses of the Sentinels, at least one.
        service: the name under which they watch the primary.
        server: the credentials for the primary; its host and port are ignored.
    """

    def __init__(
        self, sentinels: Sequence[RedisAddress], service: str, server: RedisAddress
    ) -> None:
        self._sentinels = tuple(sentinels)
        self._service = service
        self._server = server

    def __repr__(self) -> str:
        return f"{self._service} at {', '.join(map(str, self._sentinels))}"

    async def locate(self) -> RedisAddress:
        """Return the primary's address.

        Raises:
            StoreUnavailable: no Sentinel names one.
        """
        asked = [self._ask(sentinel) for sentinel in self._sentinels]
        answers = [named for named in await asyncio.gather(*asked) if named is not None]
        if not answers:
            raise StoreUnavailable(f"no Sentinel names a primary of {self._service}", "sentinel")
        primary = max(answers)
        return replace(self._server, host=primary.host, port=primary.port)

    async def check(self, pipe: Pipe) -> None:
        """Raise `StoreUnavailable` if the server says that it is a replica."""
        role = await pipe.call(("ROLE",))[0]
        # A user that may not ask for the role finds out when the first write is refused.
        if isinstance(role, list) and role and role[0] != b"master":
            raise StoreUnavailable("the named primary is a replica", "readonly")

    async def left(self, address: RedisAddress) -> None:
        """Return when the Sentinels name another primary."""
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                if await self.locate() != address:
                    return
            except StoreError:
                # Without Sentinels, a working connection is the only evidence.
                continue

    async def _ask(self, sentinel: RedisAddress) -> _NamedPrimary | None:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                pipe = await open_pipe(sentinel)
                try:
                    return _read(await pipe.call(("SENTINEL", "MASTER", self._service))[0])
                finally:
                    pipe.close()
        except (StoreError, TimeoutError):
            return None


def _read(reply: object) -> _NamedPrimary | None:
    """Return the primary that pairs of names and values describe."""
    if isinstance(reply, hiredis.ReplyError) or not isinstance(reply, list):
        return None
    fields = dict(zip(reply[::2], reply[1::2], strict=False))
    try:
        host = fields[b"ip"].decode()
        return _NamedPrimary(int(fields[b"config-epoch"]), host, int(fields[b"port"]))
    except (KeyError, ValueError, AttributeError):
        return None
