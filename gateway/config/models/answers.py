"""What clients are told: options of responses that a route has, or all routes have by default."""

from __future__ import annotations

from typing import Literal

UpstreamLimits = Literal["replace", "keep", "merge"]
"""What happens to an upstream's own fields about limits."""
