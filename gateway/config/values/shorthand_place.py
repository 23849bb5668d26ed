"""Places in a system's part of a listener where limits may be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Path = tuple[str | int, ...]


class ShorthandPlace(NamedTuple):
    """A mapping in a system's part of a listener that may have limits or name policies.

    Attributes:
        path: the path from that part to the mapping.
        name: the name of the policy that its limit becomes.
        usual: the defaults of such a policy, such as its algorithm.
    """

    path: Path
    name: str
    usual: Mapping[str, Any]
