"""How many connections libraries may accept by themselves, leaving open files for the rest."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from typing import Final

from gateway.config.models.frontends import FrontendConfig

MANY_FILES: Final = 1_000_000
"""The number of open files to assume if there is no limit."""
KINDS: Final = frozenset(["envoy_rls", "ratio", "smockron"])
"""Listeners whose connections a library accepts."""


def affordable_connections(listeners: Iterable[FrontendConfig]) -> int:
    """Return how many connections one of these listeners may have.

    Together they have a third of all files that may be open: stores, upstreams and other listeners
    need the rest.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MANY_FILES
    sharing = sum(listener.kind in KINDS for listener in listeners)
    return max(files // 3 // sharing, 1)
