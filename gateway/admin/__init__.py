"""The admin listener: health, readiness, metrics and reload of a running gateway.

`readiness` decides whether the gateway should get traffic, `resources` has what can be read,
`reloading` is how to reload its configuration and what came of it, `mux` decides which requests are
answered, and `api` is the listener itself.
"""

from __future__ import annotations

from gateway.admin.api import AdminServer
from gateway.admin.mux import AdminAnswer, GuardFields, Query, Resource
from gateway.admin.readiness import Phase, Readiness, StoreState, judge, judge_workers
from gateway.admin.reloading import (
    FailedUpgrade,
    Reloadable,
    ReloadOutcome,
    ReloadRecord,
    ReloadState,
    not_possible,
)
from gateway.admin.resources import OneProcess, Scrape, Subject, of_process

__all__ = [
    "AdminAnswer",
    "AdminServer",
    "FailedUpgrade",
    "GuardFields",
    "OneProcess",
    "Phase",
    "Query",
    "Readiness",
    "ReloadOutcome",
    "ReloadRecord",
    "ReloadState",
    "Reloadable",
    "Resource",
    "Scrape",
    "StoreState",
    "Subject",
    "judge",
    "judge_workers",
    "not_possible",
    "of_process",
]
