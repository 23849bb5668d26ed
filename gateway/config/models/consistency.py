"""Configuration of consistency between gateways: `leased` and `eventual`."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.types import Duration, LimitLine, describe, problem
from gateway.limits.consistency_mode import NOT_LEASED, PARTS_PER_WHOLE, Eventual, Leased, Terms

ConsistencyName = Literal["strict", "leased", "eventual"]

PART_PATTERN: Final = r"^\s*(0*(100|[0-9]{1,2})(\.[0-9]{1,3})?)\s*%\s*$"
MAX_TOKENS: Final = 1_000_000_000
MIN_LIFETIME_US: Final = 100_000
MAX_LIFETIME_US: Final = 60_000_000
"""How long the tokens of a killed gateway are missing at most."""
MIN_INTERVAL_US: Final = 10_000
MAX_INTERVAL_US: Final = 10_000_000
"""Longer intervals would collect more than can be reported without delaying requests."""


def read_part(value: object) -> str:
    """A share such as `10%`, as text."""
    found = re.fullmatch(PART_PATTERN, value) if isinstance(value, str) else None
    if found is None or not 0 < float(found[1]) <= 100:
        raise problem(
            f"{describe(value)} is not valid here",
            "use a share from 0.001% to 100%, for example 10%",
        )
    whole, point, rest = found[1].partition(".")
    return f"{int(whole)}{point}{rest}%"


def _read_size(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TOKENS:
        return value
    if isinstance(value, str) and "%" in value:
        return read_part(value)
    hint = "use a share of the burst such as 10%, or a whole number of tokens"
    raise problem(f"{describe(value)} is not valid here", hint)


def parts(share: str) -> int:
    """Return a share such as `10%` in parts of `PARTS_PER_WHOLE`."""
    return round(float(share.removesuffix("%")) * PARTS_PER_WHOLE / 100)


PART_SCHEMA: Final = {"type": "string", "pattern": PART_PATTERN, "examples": ["10%"]}

Part = Annotated[str, PlainValidator(read_part), WithJsonSchema(PART_SCHEMA)]
"""A share of a whole, written `10%` or `0.5%`."""

LeaseSize = Annotated[
    int | str,
    PlainValidator(_read_size),
    WithJsonSchema({"anyOf": [PART_SCHEMA, {"type": "integer", "minimum": 1}]}),
]


class LeasedConfig(Model):
    """How much a gateway takes from the store at a time, and for how long."""

    size: LeaseSize = Field(
        "10%",
        description="Tokens of one key that a gateway takes at a time: a share of the burst, or a "
        "whole number.",
    )
    lifetime: Duration = Field(
        500_000, description="How long they are valid; unspent tokens are then returned."
    )

    @property
    def terms(self) -> Leased:
        """The same for algorithms."""
        if isinstance(self.size, int):
            return Leased(self.size, 0, self.lifetime)
        return Leased(0, parts(self.size), self.lifetime)


class EventualConfig(Model):
    """How soon admissions are reported to the store."""

    interval: Duration = Field(
        100_000, description="How long admissions are collected before they are reported."
    )

    @property
    def terms(self) -> Eventual:
        """The same for algorithms."""
        return Eventual(self.interval)


def terms_of(
    consistency: ConsistencyName, leased: LeasedConfig, eventual: EventualConfig
) -> Terms | None:
    """Return the mode of a policy; None for strict."""
    return {"strict": None, "leased": leased.terms, "eventual": eventual.terms}[consistency]


def check_consistency(
    consistency: ConsistencyName,
    limits: tuple[LimitLine, ...],
    leased: LeasedConfig,
    eventual: EventualConfig,
    said: set[str],
) -> None:
    """Refuse modes that a policy's limits do not support, and keys without effect.

    Args:
        consistency: the policy's.
        limits: its limits, bound to their algorithms.
        leased: the terms of leases.
        eventual: when to report.
        said: the fields that the policy itself sets.

    Raises:
        PydanticCustomError: with a hint.
    """
    for name in ("leased", "eventual"):
        if name in said and consistency != name:
            hint = f"write consistency: {name}, or remove it"
            raise problem(f"this policy is {consistency}", hint, under=(name, KEY))
    if leased.lifetime < MIN_LIFETIME_US:
        raise problem("a lease of tokens must be at least 100ms", under=("leased", "lifetime"))
    if leased.lifetime > MAX_LIFETIME_US:
        raise problem("a lease of tokens must be at most 1m", under=("leased", "lifetime"))
    if eventual.interval < MIN_INTERVAL_US:
        raise problem("reports must be at least 10ms apart", under=("eventual", "interval"))
    if eventual.interval > MAX_INTERVAL_US:
        raise problem("reports must be at most 10s apart", under=("eventual", "interval"))
    if consistency == "strict":
        return
    for index, line in enumerate(limits):
        limit = line.limit
        cannot = NOT_LEASED if consistency == "leased" else ("concurrency",)
        if limit.algorithm in cannot:
            message = f"{limit.algorithm} cannot be {consistency}: {line.text}"
            hint = "move this limit to a strict policy of its own"
            raise problem(message, hint, under=("limits", index))
        if limit.count_refused:
            message = (
                f"only strict policies can count refused requests, and this one is {consistency}"
            )
            raise problem(message, "remove one of them", under=("count_refused", KEY))
