"""A listener for gRPC clients: the part that is the same for every service."""

from __future__ import annotations

from gateway.config.values.address import Address, UnixAddress
from gateway.net.handover import HasNumber
from gateway.systems.grpc.ports import ServingOptions
from gateway.systems.grpc.server import Bounds, GrpcServer


class GrpcFrontend:
    """Serves one gRPC server at one address; see `Frontend`.

    Args:
        serving: where and how it listens.
        server: the server.
        bounds: those of the server.

    Attributes:
        address: where it listens, with the actual port.
        sockets: none; see `Frontend`.
    """

    def __init__(self, serving: ServingOptions, server: GrpcServer, bounds: Bounds) -> None:
        self.address: Address | UnixAddress = serving.address
        self.sockets: tuple[HasNumber, ...] = ()
        self._serving = serving
        self._server = server
        self._bounds = bounds

    def _stays(self, serving: ServingOptions, bounds: Bounds) -> bool:
        """Return whether the same server can serve in this way."""
        return serving == self._serving and bounds == self._bounds

    async def start(self) -> None:
        """Start listening and serving.

        Raises:
            OSError: the address cannot be bound.
        """
        self.address = await self._server.start(self._serving)

    @property
    def under_way(self) -> int:
        """Return how many calls are in flight."""
        return self._server.under_way

    async def drain(self, seconds: float) -> int:
        """Accept no more calls, let those in flight end, and close; see `Frontend`."""
        return await self._server.drain(seconds)
