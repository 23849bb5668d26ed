"""Which listeners for clients of other systems a changed configuration keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.config.models.gateway import GatewayConfig
from gateway.systems.base import Frontend, FrontendContext


class FrontendChange(NamedTuple):
    """TEMPORARY."""

    running: list[Frontend]
    new: list[tuple[int, Frontend]]
    retired: list[Frontend]


def change_frontends(
    ground: FrontendContext,  # noqa: ARG001
    old: GatewayConfig,  # noqa: ARG001
    frontends: Sequence[Frontend],
    *,
    is_same_decider: bool,  # noqa: ARG001
) -> FrontendChange:
    """TEMPORARY."""
    return FrontendChange(list(frontends), [], [])
