"""Sluice: a rate-limiting reverse-proxy gateway, and its limiter as a library.

    from gateway import Limiter, Policy

The docstring of each room says what belongs there. `docs/architecture.md` shows the rooms and what
each may import; `docs/library.md` is for users of the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.base import moved

if TYPE_CHECKING:
    from gateway.base.errors import ConfigError
    from gateway.library import Decision, Limiter, LimitExceeded, Policy

__all__ = ["ConfigError", "Decision", "LimitExceeded", "Limiter", "Policy", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import a public name on first use: the `sluice` command does not need them."""
    if name == "ConfigError":
        from gateway.base.errors import ConfigError

        return ConfigError
    if name in __all__:
        from gateway import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


moved.install()
