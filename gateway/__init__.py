"""Sluice: a rate-limiting reverse-proxy gateway.

Every room of the package says in its own docstring what lives there; `docs/architecture.md`
draws the house and the arrows between the rooms.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
