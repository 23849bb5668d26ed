"""A listener whose clients speak gRPC: what is the same whichever service they call."""

from __future__ import annotations

from gateway.config.values.address import Address, UnixAddress
from gateway.systems.grpc.ports import Door
from gateway.systems.grpc.server import GrpcServer


class GrpcFrontend:
    """Serves one gRPC server at one address; see `Frontend`.

    Args:
        door: where and how it listens.
        server: what it serves.

    Attributes:
        address: where it listens, with the port that it was given.
    """

    def __init__(self, door: Door, server: GrpcServer) -> None:
        self.address: Address | UnixAddress = door.address
        self._door = door
        self._server = server

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            OSError: the address cannot be had.
        """
        self.address = await self._server.start(self._door)

    @property
    def under_way(self) -> int:
        """How many calls are in flight."""
        return self._server.under_way

    async def drain(self, seconds: float) -> int:
        """Take no more calls, let those in flight end, and close; see `Frontend`."""
        return await self._server.drain(seconds)
