"""Sluice: a rate-limiting reverse-proxy gateway, and its limiter as a library.

    from gateway import Limiter, Policy

Every room of the package says in its own docstring what lives there; `docs/architecture.md`
draws the house and the arrows between the rooms, `docs/library.md` is for users of the library.
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
    """The library's names, imported when first asked for: the command line has no use for them."""
    if name == "ConfigError":
        from gateway.base.errors import ConfigError

        return ConfigError
    if name in __all__:
        from gateway import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


moved.install()
