"""A Throttr listener in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.frontends import FrontendConfig
from gateway.config.values.units import format_duration, format_size


def explain_throttr(listener: FrontendConfig) -> Iterator[str]:
    """Yield the version of the protocol, and its bounds."""
    settings = listener.throttr
    if settings is None:
        return
    size = "" if settings.version == "v2" else f", with values of {settings.bits} bits"
    yield f"They speak {settings.version}{size}, and keep records of their own in the store."
    yield (
        f"Where the store is memory, {settings.max_records:,} records of"
        f" {format_size(settings.max_memory)} together have room; further ones are refused."
    )
    yield (
        f"{settings.max_connections:,} clients may be connected; a message may take"
        f" {format_duration(settings.message_timeout)} to arrive."
    )
