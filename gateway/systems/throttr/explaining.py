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
    yield f"Clients use {settings.version}{size}, and keep their own records in the store."
    yield (
        f"In memory, there is room for {settings.max_records:,} records with a total of"
        f" {format_size(settings.max_memory)}; further ones are refused."
    )
    yield (
        f"At most {settings.max_connections:,} clients may connect; a message may take"
        f" {format_duration(settings.message_timeout)} to arrive."
    )
