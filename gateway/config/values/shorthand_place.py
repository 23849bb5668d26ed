"""Where in a listener's own part limits may stand, as the module of its system says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Path = tuple[str | int, ...]


class ShorthandPlace(NamedTuple):
    """A mapping inside a listener's own part that may say limits, or name policies.

    Attributes:
        path: from the listener's own part to the mapping.
        name: of the policy that a limit in it becomes.
        usual: what such a policy says where it leaves it out, such as its algorithm.
    """

    path: Path
    name: str
    usual: Mapping[str, Any]
