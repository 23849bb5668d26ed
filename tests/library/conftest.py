"""What all tests of the library need."""

from __future__ import annotations

import pytest

from gateway import Limiter, Policy


@pytest.fixture(scope="session", autouse=True)
def _models_are_built() -> None:
    """Making the first limiter builds the models, which reads files: not in an event loop."""
    Limiter(Policy("first", "1/s"))
