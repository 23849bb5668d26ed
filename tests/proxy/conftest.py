"""Everything that touches a socket is tried on both event loops: users may have either."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What pytest-asyncio makes loops with; each test runs once with each."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
