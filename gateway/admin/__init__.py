"""The admin listener: looking at a running gateway.

`readiness` says when the gateway should get traffic, `resources` what can be read, `mux`
which requests are answered at all, and `api` is the listener itself.
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
