"""How exactly limits are kept among gateways: `leased` and `eventual`, and what goes with them."""

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
"""What a gateway that is killed takes with it is missing for so long at most."""
MIN_INTERVAL_US: Final = 10_000
MAX_INTERVAL_US: Final = 10_000_000
"""Longer ones would gather more than can be told without holding up requests."""


def _read_part(value: object) -> str:
    """A share such as `10%`, as it is written."""
    found = re.fullmatch(PART_PATTERN, value) if isinstance(value, str) else None
    if found is None or not 0 < float(found[1]) <= 100:
        raise problem(f"found {describe(value)}", "a share from 0.001% to 100%, such as 10%")
    whole, point, rest = found[1].partition(".")
    return f"{int(whole)}{point}{rest}%"


def _read_size(value: object) -> int | str:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TOKENS:
        return value
    if isinstance(value, str) and "%" in value:
        return _read_part(value)
    hint = "a share of what may pass at once, such as 10%, or a whole number of tokens"
    raise problem(f"found {describe(value)}", hint)


def parts(share: str) -> int:
    """A share such as `10%` in parts of `PARTS_PER_WHOLE`."""
    return round(float(share.removesuffix("%")) * PARTS_PER_WHOLE / 100)


_PART_SCHEMA: Final = {"type": "string", "pattern": PART_PATTERN, "examples": ["10%"]}

Part = Annotated[str, PlainValidator(_read_part), WithJsonSchema(_PART_SCHEMA)]
"""A share of a whole, written `10%` or `0.5%`."""

LeaseSize = Annotated[
    int | str,
    PlainValidator(_read_size),
    WithJsonSchema({"anyOf": [_PART_SCHEMA, {"type": "integer", "minimum": 1}]}),
]


class LeasedConfig(Model):
    """How much a gateway takes from the store at a time, and for how long."""

    size: LeaseSize = Field(
        "10%",
        description="How many tokens of one key a gateway takes at a time: a share of what may "
        "pass at once, or a whole number.",
    )
    lifetime: Duration = Field(
        500_000, description="How long they may be spent; what is left then is returned."
    )

    @property
    def terms(self) -> Leased:
        """The same for algorithms."""
        if isinstance(self.size, int):
            return Leased(self.size, 0, self.lifetime)
        return Leased(0, parts(self.size), self.lifetime)


class EventualConfig(Model):
    """How soon the store is told of what a gateway let through."""

    interval: Duration = Field(
        100_000, description="How long what passed is gathered before it is reported."
    )

    @property
    def terms(self) -> Eventual:
        """The same for algorithms."""
        return Eventual(self.interval)


def terms_of(
    consistency: ConsistencyName, leased: LeasedConfig, eventual: EventualConfig
) -> Terms | None:
    """What a policy's words come to; None for strict."""
    return {"strict": None, "leased": leased.terms, "eventual": eventual.terms}[consistency]


def check_consistency(
    consistency: ConsistencyName,
    limits: tuple[LimitLine, ...],
    leased: LeasedConfig,
    eventual: EventualConfig,
    said: set[str],
) -> None:
    """Refuse terms that a policy's limits cannot have, and words without a meaning.

    Args:
        consistency: the policy's.
        limits: its limits, bound to their algorithms.
        leased: what a lease is.
        eventual: when to report.
        said: the fields that the policy says itself.

    Raises:
        PydanticCustomError: with what would do.
    """
    for name in ("leased", "eventual"):
        if name in said and consistency != name:
            hint = f"write consistency: {name}, or leave it out"
            raise problem(f"this policy is {consistency}", hint, under=(name, KEY))
    if leased.lifetime < MIN_LIFETIME_US:
        raise problem("a lease of tokens lives at least 100ms", under=("leased", "lifetime"))
    if leased.lifetime > MAX_LIFETIME_US:
        raise problem("a lease of tokens lives at most 1m", under=("leased", "lifetime"))
    if eventual.interval < MIN_INTERVAL_US:
        raise problem("reports are at least 10ms apart", under=("eventual", "interval"))
    if eventual.interval > MAX_INTERVAL_US:
        raise problem("reports are at most 10s apart", under=("eventual", "interval"))
    if consistency == "strict":
        return
    for index, line in enumerate(limits):
        limit = line.limit
        cannot = NOT_LEASED if consistency == "leased" else ("concurrency",)
        if limit.algorithm in cannot:
            message = f"{limit.algorithm} cannot be {consistency}: {line.text}"
            hint = "put this limit into a strict policy of its own"
            raise problem(message, hint, under=("limits", index))
        if limit.count_refused:
            message = f"only strict policies can count refused requests, and this is {consistency}"
            raise problem(message, "leave one of them out", under=("count_refused", KEY))
