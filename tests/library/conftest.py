"""What all tests of the library need."""

from __future__ import annotations

import pytest
from pytest_aiohttp import AiohttpClient

from gateway import Limiter, Policy
from tests.library.http import Serve, aiohttp_served, asgi_served


@pytest.fixture(scope="session", autouse=True)
def _files_are_read() -> None:
    """Making the first limiter reads files: not in an event loop."""
    Limiter(Policy("first", "1/s"), store="redis://127.0.0.1:1/0")


@pytest.fixture(params=["aiohttp", "asgi"])
def serve(request: pytest.FixtureRequest, aiohttp_client: AiohttpClient) -> Serve:
    """An application under each middleware."""
    return asgi_served if request.param == "asgi" else aiohttp_served(aiohttp_client)
