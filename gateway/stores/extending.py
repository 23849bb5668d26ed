"""What a store of one's own is written with; `docs/library.md` has an example."""

from __future__ import annotations

from gateway.base.clock import Clock, monotonic_us, wall_us
from gateway.base.errors import StoreError, StoreReplyError, StoreTimeout, StoreUnavailable
from gateway.limits.decision import NEVER, Decision, Verdict, combine
from gateway.limits.rate import Limit
from gateway.stores.base import (
    Ask,
    DebitStore,
    ImmediateStore,
    NoBackfillStore,
    PreparedStore,
    Store,
)

__all__ = [
    "NEVER",
    "Ask",
    "Clock",
    "DebitStore",
    "Decision",
    "ImmediateStore",
    "Limit",
    "NoBackfillStore",
    "PreparedStore",
    "Store",
    "StoreError",
    "StoreReplyError",
    "StoreTimeout",
    "StoreUnavailable",
    "Verdict",
    "combine",
    "monotonic_us",
    "wall_us",
]
