"""A child's part in a reload: it prepares another configuration, then uses it or does not.

`gateway.workers.reload` is the supervisor's part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from socket import socket
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from gateway.base.errors import GatewayError
from gateway.base.tasks import Background
from gateway.config.models.gateway import GatewayConfig
from gateway.wiring.client_listeners import BoundSocket
from gateway.workers import orders
from gateway.workers.parcels import unpack

log = logging.getLogger(__name__)

Made = TypeVar("Made")


class Enclosed(NamedTuple):
    """What comes with a configuration: the order `PREPARE` has a parcel of each.

    Attributes:
        number: of the reload.
        sockets: for each socket that was sent before, the number of its listener.
    """

    number: int
    sockets: tuple[int, ...]


class Reconfigurable(Protocol[Made]):
    """What uses configurations; see `Gateway`."""

    async def prepare(self, config: GatewayConfig, sockets: Sequence[BoundSocket]) -> Made:
        """Make everything that a configuration needs, without using it."""

    async def commit(self, prepared: Made) -> None:
        """Use it."""

    async def discard(self, prepared: Made) -> None:
        """Undo the preparation."""


class Preparing(Generic[Made]):
    """Carries out the orders about configurations, one after the other.

    Args:
        target: what uses them.
    """

    def __init__(self, target: Reconfigurable[Made]) -> None:
        self._target = target
        self._sockets: list[socket] = []
        self._prepared: tuple[int, Made] | None = None
        self._todo: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]]] = asyncio.Queue()
        self._background = Background(self._work)
        self._supervisor: orders.Orders | None = None

    @property
    def acts(self) -> Mapping[bytes, Callable[[list[int]], object]]:
        """The handlers of the orders, for `Orders`."""
        return {
            orders.SOCKETS: self._take,
            orders.PREPARE: self._prepare_later,
            orders.COMMIT: lambda _: self._todo.put_nowait(self._commit),
            orders.DISCARD: lambda _: self._todo.put_nowait(self._discard),
        }

    def start(self, supervisor: orders.Orders) -> None:
        """Carry out orders from now on, those that came before included."""
        self._supervisor = supervisor
        self._background.start()

    async def close(self) -> None:
        """Undo what is prepared, and carry out no more orders."""
        await self._background.end()
        await self._discard()
        _close(self._sockets)

    def _take(self, files: list[int]) -> None:
        self._sockets += [socket(fileno=number) for number in files]

    def _prepare_later(self, files: list[int]) -> None:
        sockets, self._sockets = self._sockets, []
        self._todo.put_nowait(lambda: self._prepare(files, sockets))

    async def _work(self) -> None:
        while True:
            await (await self._todo.get())()

    async def _prepare(self, files: list[int], sockets: list[socket]) -> None:
        await self._discard()
        enclosed, config = await asyncio.to_thread(_unpack, files)
        error: GatewayError | None = None
        try:
            if len(sockets) != len(enclosed.sockets):
                raise GatewayError("the sockets of the new configuration did not arrive")  # noqa: TRY301
            bound = [BoundSocket(*each) for each in zip(enclosed.sockets, sockets, strict=True)]
            self._prepared = enclosed.number, await self._target.prepare(config, bound)
        except GatewayError as reason:
            error = reason
        except Exception as reason:
            # The configuration before is still in use, and nothing must end it.
            log.exception("the new configuration cannot be prepared")
            error = GatewayError(f"{type(reason).__name__} (the log has the details)")
        if error is not None:
            _close(sockets)
        if self._supervisor is not None:
            self._supervisor.report_prepared(enclosed.number, error)

    async def _commit(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and self._supervisor is not None:
            number, made = prepared
            await self._target.commit(made)
            self._supervisor.report_committed(number)

    async def _discard(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            await self._target.discard(prepared[1])


def _unpack(files: list[int]) -> tuple[Enclosed, GatewayConfig]:
    enclosed, config = map(unpack, files)
    return cast("Enclosed", enclosed), cast("GatewayConfig", config)


def _close(sockets: list[socket]) -> None:
    for one in sockets:
        one.close()
    sockets.clear()
