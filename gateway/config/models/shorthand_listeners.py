"""Limits that are written in a listener, and the policies that they become.

What a caller of another system's protocol is held to are policies like those of routes. A
system's own module says where in its part of a listener limits may stand.
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
"""From a listener's own part, and its name, to its long form and the places in it.

What is given is plain data, whatever is wrong with it, and is not to be changed.
"""

PLACES: Final[dict[str, Places]] = {
    "envoy_rls": frontend_envoy_rls.find_limits,
    "ratio": frontend_ratio.find_limits,
    "smockron": frontend_smockron.find_limits,
    "throttr": frontend_throttr.long_form,
}
"""By the key that says which protocol a listener speaks."""

BESIDE: Final[dict[str, tuple[str, ...]]] = {"throttr": ("size",)}
"""What may stand beside that key instead of under it, so that the shortest form says all."""


def places(listeners: object) -> Iterator[tuple[Path, dict[str, Any], str, Mapping[str, Any]]]:
    """Every mapping that may say limits: its path, itself, its policy's name and what is usual.

    The listeners are put into their long form in place, so they have to be a copy; so are the
    mappings that are handed out.
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
    """Put what stands beside a protocol's key under it; paths there, and where it was written.

    What stands in both places is left, and is a key that nobody knows. The listeners are copies
    in the long form that `places` has made.
    """
    for index, listener in enumerate(listeners if isinstance(listeners, list) else ()):
        for kind, words in BESIDE.items():
            body = listener.get(kind) if isinstance(listener, dict) else None
            for word in words:
                if isinstance(body, dict) and word in listener and word not in body:
                    body[word] = listener.pop(word)
                    yield ("listeners", index, kind, word), ("listeners", index, word)


def _own(parent: Any, path: Path) -> dict[str, Any] | None:
    """What is at a path, each level of it copied; None if there is no mapping."""
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
