"""The settings of every store that gateways share over a network, in addition to its URL."""

from __future__ import annotations

from typing import Final, NamedTuple, TypedDict

from gateway.base.clock import Clock, monotonic_us

HEARTBEAT_S: Final = 2.0


class StoreOptions(TypedDict, total=False):
    """The keyword arguments of a store's constructor that have defaults; see `StoreSettings`."""

    deadline_us: int
    heartbeat_s: float
    clock: Clock


class StoreSettings(NamedTuple):
    """The settings of a store.

    Attributes:
        domain: the namespace of this deployment's keys.
        deadline_us: how long callers wait for a batch. If the server supports it, a batch that it
            reads later spends nothing; 0 lets it be spent however late.
        heartbeat_s: seconds between two heartbeats, by which gateways count each other.
        clock: this process's time.
    """

    domain: str
    deadline_us: int = 20_000
    heartbeat_s: float = HEARTBEAT_S
    clock: Clock = monotonic_us
