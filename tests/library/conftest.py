"""What all tests of the library need."""

from __future__ import annotations

import pytest

from gateway import Limiter, Policy


@pytest.fixture(scope="session", autouse=True)
def _files_are_read() -> None:
    """Making the first limiter reads files: not in an event loop."""
    Limiter(Policy("first", "1/s"), store="redis://127.0.0.1:1/0")
