"""What the check says of a configuration."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.base.errors import ConfigError, Problem
from gateway.config.checking.check import check_text


def said_of(text: str, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Return the problems of a configuration, or its warnings if it has none."""
    try:
        return list(check_text(text, environ=environ).warnings)
    except ConfigError as error:
        return list(error.problems)
