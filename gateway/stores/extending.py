"""The names needed to write a store; `docs/library.md` has an example."""

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
from gateway.stores.urls import (
    Option,
    StoreHost,
    StoreUrl,
    StoreUrlError,
    UrlParts,
    UrlRules,
    any_text,
    check_options,
    kept_in,
    one_of,
    read_parts,
    whole_number,
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
    "Option",
    "PreparedStore",
    "Store",
    "StoreError",
    "StoreHost",
    "StoreReplyError",
    "StoreTimeout",
    "StoreUnavailable",
    "StoreUrl",
    "StoreUrlError",
    "UrlParts",
    "UrlRules",
    "Verdict",
    "any_text",
    "check_options",
    "combine",
    "kept_in",
    "monotonic_us",
    "one_of",
    "read_parts",
    "wall_us",
    "whole_number",
]
