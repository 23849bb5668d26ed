"""Turns limits that are written in a listener into policies.

Clients of other systems are limited by policies, like routes. Each system's module lists the places
in its part of a listener where limits may be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gateway.config.values.shorthand_place import Path, ShorthandPlace
from gateway.systems.envoy import config as frontend_envoy_rls
from gateway.systems.ratio import config as frontend_ratio
from gateway.systems.smockron import config as frontend_smockron
from gateway.systems.throttr import config as frontend_throttr

Places = Callable[[Any, str], tuple[Any, list[ShorthandPlace]]]
"""Converts a system's part of a listener, given its name, to the long form and its places.

The input is plain data, valid or not, and must not be changed.
"""

PLACES: Final[dict[str, Places]] = {
    "envoy_rls": frontend_envoy_rls.find_limits,
    "ratio": frontend_ratio.find_limits,
    "smockron": frontend_smockron.find_limits,
    "throttr": frontend_throttr.long_form,
}
"""By the key that names the protocol of a listener."""

BESIDE: Final[dict[str, tuple[str, ...]]] = {"throttr": ("size",)}
"""Keys that may be written beside that key instead of under it, for the shortest form."""


def places(listeners: object) -> Iterator[tuple[Path, dict[str, Any], str, Mapping[str, Any]]]:
    """Yield each mapping that may have limits: its path, itself, its policy's name and defaults.

    The listeners are expanded in place, so pass a copy; the yielded mappings are copies too.
    """
    if not isinstance(listeners, list):
        return
    seen: dict[str, int] = {}
    for index, listener in enumerate(listeners):
        if not isinstance(listener, dict):
            continue
        for kind, find in PLACES.items():
            if kind not in listener:
                continue
            number = seen[kind] = seen.get(kind, 0) + 1
            name = kind if number == 1 else f"{kind}-{number}"
            listener[kind], found = find(listener[kind], name)
            for place in found:
                body = _own(listener, (kind, *place.path))
                if body is not None:
                    yield ("listeners", index, kind, *place.path), body, place.name, place.usual


def beside(listeners: object) -> Iterator[tuple[Path, Path]]:
    """Move keys beside a protocol's key under it; returns new paths and where each was written.

    A key in both places stays, and is reported as unknown. The listeners are the expanded copies
    made by `places`.
    """
    for index, listener in enumerate(listeners if isinstance(listeners, list) else ()):
        for kind, words in BESIDE.items():
            body = listener.get(kind) if isinstance(listener, dict) else None
            for word in words:
                if isinstance(body, dict) and word in listener and word not in body:
                    body[word] = listener.pop(word)
                    yield ("listeners", index, kind, word), ("listeners", index, word)


def _own(parent: Any, path: Path) -> dict[str, Any] | None:
    """Return the mapping at a path, with each level copied; None if there is none."""
    for part in path:
        try:
            child = parent[part]
        except (LookupError, TypeError):
            return None
        if isinstance(child, Mapping):
            child = dict(child)
        elif isinstance(child, list | tuple):
            child = list(child)
        else:
            return None
        parent[part] = child
        parent = child
    return parent if isinstance(parent, dict) else None
