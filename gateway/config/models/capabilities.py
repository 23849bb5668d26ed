"""How a system says which configurations its servers cannot keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import PolicyConfig
from gateway.config.values.findings import Finding
from gateway.stores.urls import StoreUrl


class CapabilityChecks(NamedTuple):
    """The checks of a system, in addition to `stores.capabilities` of its stores.

    Attributes:
        of_config: the whole configuration: listeners of the system, stores that are its servers.
        of_policy: a policy that such a store keeps; paths begin below the policy. None if there is
            no such store.
    """

    of_config: Callable[[GatewayConfig], Iterator[Finding]]
    of_policy: Callable[[StoreUrl, PolicyConfig], Iterator[Finding]] | None = None
