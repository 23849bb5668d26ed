"""The interface of front ends, and what the gateway passes to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.address import Address, UnixAddress
from gateway.limiter.decider import Decider
from gateway.limiter.plan import CompiledPolicy, PlanOf
from gateway.net.binding import ALONE, Sharing
from gateway.net.handover import HasNumber
from gateway.net.tls.texts import TlsTexts
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.base import Store


class FrontendContext(NamedTuple):
    """The parts of the gateway that front ends share with its routes.

    Attributes:
        config: the whole configuration.
        decider: asks the store; see `gateway.systems.asking`.
        store: the store itself, for operations other than policy limits.
        policies: the run-time form of every policy, by name.
        plan_of: compiles policies for callers.
        metrics: all counters.
        tls: of listeners, by name; loaded before they start, and None for plain ones.
        is_leaving: whether the gateway is shutting down, but still serving.
        sharing: whether addresses are shared with other processes of this gateway.
    """

    config: GatewayConfig
    decider: Decider
    store: Store
    policies: Mapping[str, CompiledPolicy]
    plan_of: PlanOf
    metrics: GatewayMetrics
    tls: Mapping[str, TlsTexts | None] = MappingProxyType({})
    is_leaving: Callable[[], bool] = lambda: False
    sharing: Sharing = ALONE


class Frontend(Protocol):
    """A listener that speaks another system's protocol."""

    async def start(self) -> None:
        """Start listening and serving.

        Raises:
            OSError: the address cannot be bound (a `BindError` says which of several it is);
                nothing is left open.
        """

    def reconfigured(
        self, name: str, listener: FrontendConfig, context: FrontendContext
    ) -> Callable[[], object] | None:
        """Prepare to serve as another configuration says, with the connections that are open.

        Args:
            name: its name in metrics and logs.
            listener: its configuration, at the same address as before.
            context: the parts of the gateway that it uses.

        Returns:
            What makes it do so; None if that takes another front end.
        """

    @property
    def address(self) -> Address | UnixAddress:
        """Return the address, with the actual port."""

    @property
    def sockets(self) -> Sequence[HasNumber]:
        """Return the sockets that another process can take over; none if a library bound them."""

    @property
    def under_way(self) -> int:
        """Return how many requests were read and not answered yet."""

    async def drain(self, seconds: float) -> int:
        """Accept no more, let requests in progress end within so many seconds, and close.

        Returns:
            How many requests were cut off.
        """


class MakeFrontend(Protocol):
    """Creates a front end, which listens once it is started."""

    def __call__(self, name: str, listener: FrontendConfig, context: FrontendContext) -> Frontend:
        """Create a front end.

        Args:
            name: its name in metrics and logs.
            listener: its configuration.
            context: the parts of the gateway that it uses.
        """
