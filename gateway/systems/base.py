"""What every front end is to the gateway, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.address import Address, UnixAddress
from gateway.limiter.decider import Decider
from gateway.limiter.plan import CompiledPolicy, PlanOf
from gateway.net.binding import ALONE, Sharing
from gateway.net.tls.texts import TlsTexts
from gateway.observe.metrics import GatewayMetrics
from gateway.stores.base import Store


class FrontendContext(NamedTuple):
    """What front ends stand on: parts of the gateway that they share with its routes.

    Attributes:
        config: the whole configuration.
        decider: asks the store; see `gateway.systems.asking`.
        store: the store itself, for what is no limit of a policy.
        policies: the run-time form of every policy, by name.
        plan_of: compiles some of them for callers.
        metrics: all counters.
        tls: of listeners, by name; loaded before they are started, and None for plain ones.
        is_leaving: whether the gateway has begun to end, and serves for a while yet.
        sharing: of the addresses, with other processes of this gateway.
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
        """Listen and serve.

        Raises:
            OSError: the address cannot be had (a `BindError` says which of several it is);
                nothing is left behind.
        """

    @property
    def address(self) -> Address | UnixAddress:
        """Where it listens, with the port that was really taken."""

    @property
    def under_way(self) -> int:
        """How many requests were read and are not answered yet."""

    async def drain(self, seconds: float) -> int:
        """Take no more, let what is under way end within so many seconds, and close.

        Returns:
            How many requests were cut off.
        """


class MakeFrontend(Protocol):
    """Makes a front end; it listens when it is started."""

    def __call__(self, name: str, listener: FrontendConfig, ground: FrontendContext) -> Frontend:
        """Make one.

        Args:
            name: what metrics and logs call it.
            listener: its configuration.
            ground: what it stands on.
        """
