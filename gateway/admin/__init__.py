"""The admin listener: health, readiness and metrics of a running gateway.

`readiness` decides whether the gateway should get traffic, `resources` has what can be read, `mux`
decides which requests are answered, and `api` is the listener itself.
"""

from __future__ import annotations

from gateway.admin.api import AdminServer
from gateway.admin.mux import AdminAnswer, Query, Resource
from gateway.admin.readiness import Phase, Readiness, StoreState, judge, judge_workers
from gateway.admin.resources import OneProcess, Scrape, Subject, of_process

__all__ = [
    "AdminAnswer",
    "AdminServer",
    "OneProcess",
    "Phase",
    "Query",
    "Readiness",
    "Resource",
    "Scrape",
    "StoreState",
    "Subject",
    "judge",
    "judge_workers",
    "of_process",
]
