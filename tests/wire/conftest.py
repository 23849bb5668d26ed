"""Fixtures that several test modules about the wire share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.wire.origin import OracleOrigin


@pytest.fixture(scope="module")
def origin() -> Iterator[OracleOrigin]:
    """What all cases of a module are sent to."""
    with OracleOrigin() as origin:
        yield origin
