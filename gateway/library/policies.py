"""A policy in Python.

It has the same keys as in the configuration, and is checked by the same models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from gateway.config.models.consistency import ConsistencyName
from gateway.config.models.policies import AlgorithmName, HeaderStyle, IfMissing, OnStoreError


class PolicyOptions(TypedDict, total=False):
    """Options of a policy besides its limits; `docs/configuration.md` explains each."""

    algorithm: AlgorithmName
    queue: Mapping[str, int | str] | Literal["off"]
    lease: str
    count_refused: bool
    cost: int | str | Mapping[str, int | str]
    count_when: int | str | Sequence[int | str]
    on_limit: Mapping[str, int | str]
    on_store_error: OnStoreError
    consistency: ConsistencyName
    leased: Mapping[str, int | str]
    eventual: Mapping[str, str]
    mode: str
    tier: str | Mapping[str, str]
    tiers: Mapping[str, str | Sequence[str]]
    only: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
    except_: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
    candidate: str | Sequence[str] | Mapping[str, str | Sequence[str]]
    if_missing: IfMissing
    secret: bool
    headers: HeaderStyle
    throttlex: Mapping[str, int | float | str | Sequence[str]]


class Policy:
    """A rule with a name: how many may pass, and what happens to the excess.

    Args:
        name: the name in stores, headers and metrics.
        limits: lines such as `10/s burst 20`; a request must be admitted by all of them, or none is
            spent. With `throttlex`, there are none.
        options: as in the configuration, durations as text with a unit: `queue={"max": 100,
            "max_wait": "2s"}`. What Python reserves has an underscore at the end: `except_`.

    Nothing is checked here: a `Limiter` reports all problems together.

    >>> Policy("pay", "10/s burst 20", "1000/h", on_store_error="open")
    Policy('pay', '10/s burst 20', '1000/h', on_store_error='open')
    """

    __slots__ = ("limits", "name", "options")

    def __init__(self, name: str, *limits: str, **options: Unpack[PolicyOptions]) -> None:
        self.name = name
        self.limits = limits
        self.options = options

    def __repr__(self) -> str:
        words = [repr(self.name), *map(repr, self.limits)]
        words += [f"{name}={value!r}" for name, value in self.options.items()]
        return f"Policy({', '.join(words)})"

    def as_data(self) -> dict[str, Any]:
        """Return the policy as in the configuration."""
        options = {name.rstrip("_"): value for name, value in self.options.items()}
        if "throttlex" in options and not self.limits:
            return options
        return {"limits": self.limits, **options}
