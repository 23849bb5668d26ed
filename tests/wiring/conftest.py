"""A gateway as a whole is tried on both event loops, as its proxy is."""

from __future__ import annotations

from tests.proxy.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
