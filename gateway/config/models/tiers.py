"""Tiers of a policy: other limits for some of its clients."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Final

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from gateway.config.models.conditions import Excepting
from gateway.config.models.lists import read_word
from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.lines import check_line
from gateway.config.values.places import FieldText, FilePath
from gateway.config.values.types import LimitLine, Line, ListOf, describe, problem
from gateway.limits.key_words import PLACE_KEYS
from gateway.routing.value_set import MAX_NUMBER

MAX_TIERS: Final = MAX_NUMBER
MAX_LIMITS: Final = 16
MAX_CLIENTS: Final = 10_000
UNLIMITED: Final = "unlimited"
DENY: Final = "deny"
BY_ADDRESS: Final = "ip"
OWN: Final = "limits"
RESERVED: Final = frozenset({UNLIMITED, DENY, BY_ADDRESS, OWN, "candidate", "off"})
"""Words with a meaning of their own; no tier may have these names."""
_is_name: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}").fullmatch
_HAS_KEY: Final = re.compile(r"\sper\s")


def _read_unknown(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise problem(f"found {describe(value)}, a word was expected", "limits, ip, deny, or a tier")


class TierConfig(Model):
    """How the tier of a client is found."""

    per: Annotated[str, PlainValidator(read_word), WithJsonSchema({"type": "string"})] = Field(
        description="What names the tier, or the client that the file has a tier for: header:NAME "
        "and the like."
    )
    file: FilePath | None = Field(
        None,
        description="A file with a client and its tier on each line, up to a million, as CSV, or "
        "as YAML if its name ends in .yaml or .yml. It is read again when it changes.",
    )
    clients: Annotated[dict[str, FieldText], Field(max_length=MAX_CLIENTS)] = Field(
        {}, description="Single clients and their tiers, whatever the file says of them."
    )
    unknown: Annotated[str, PlainValidator(_read_unknown), WithJsonSchema({"type": "string"})] = (
        Field(
            OWN,
            description="For clients without a tier: limits for those of the policy, ip for the "
            "same by address, deny for 403, or the name of a tier.",
        )
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        return {"per": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _check_source(self) -> TierConfig:
        if self.per == "ip":
            message = "the tier of a client is not found by its address"
            hint = "use header:NAME and the like; for networks, except: 10.0.0.0/8"
            raise problem(message, hint, under=("per",))
        can_choose = not self.per.startswith(("header:", "client_cert:", "jwt:", *PLACE_KEYS))
        if self.is_named and can_choose:
            message = f"clients could choose their tier: {self.per}"
            hint = "use a header that a trusted proxy sets, or a file of clients and their tiers"
            raise problem(message, hint, under=("per",))
        return self

    @property
    def is_named(self) -> bool:
        """Whether requests name their tier, and not only their client."""
        return self.file is None and not self.clients


def _unlimited_as_none(value: object) -> object:
    return () if isinstance(value, str) and value.strip() == UNLIMITED else value


class _Unlimited:
    """Marks a list of limits that the word `unlimited` stands for if it is empty."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(_unlimited_as_none, handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"const": UNLIMITED}, *handler(schema)["anyOf"]]}


TierLimits = Annotated[tuple[Line, ...], Field(max_length=MAX_LIMITS), ListOf, _Unlimited]


class Tiered(Excepting):
    """The part of a policy that says who has other limits."""

    tier: TierConfig | None = Field(
        None,
        description="How the tier of a client is found: a header that trusted proxies set, or a "
        "mapping with a file of clients and their tiers.",
    )
    tiers: Annotated[dict[str, TierLimits], Field(max_length=MAX_TIERS)] = Field(
        {},
        description="Limits in place of the policy's own, by tier: a limit, a list, or unlimited.",
    )

    @field_validator("tiers")
    @classmethod
    def _check_names(cls, tiers: dict[str, Any]) -> dict[str, Any]:
        for name in tiers:
            if name in RESERVED:
                message = f"{name!r} has a meaning of its own, and cannot be a tier"
                raise problem(message, "use another name", under=(name, KEY))
            if not _is_name(name):
                message = f"{name!r} is not a valid name of a tier"
                raise problem(message, "use letters, digits, _ - and .", under=(name, KEY))
        return tiers


def check_tiers(policy: Tiered, algorithm: str, *, count_refused: bool, is_throttlex: bool) -> None:
    """Refuse tiers that cannot be found or kept. Raises `problem`."""
    if policy.tiers and policy.tier is None:
        message = "it is not said how the tier of a client is found"
        hint = "for example tier: header:X-Plan, or tier: {per: header:X-API-Key, file: keys.csv}"
        raise problem(message, hint, under=("tiers", KEY))
    if policy.tier is None:
        return
    if is_throttlex:
        message = "a policy of ThrottleX has no tiers: its table has the numbers of single keys"
        raise problem(message, "remove one of the two", under=("tier", KEY))
    if not policy.tiers:
        hint = "for example tiers: {free: 10/s, pro: 100/s, internal: unlimited}"
        raise problem("there are no tiers", hint, under=("tier", KEY))
    unknown = policy.tier.unknown
    if unknown not in {*policy.tiers, OWN, BY_ADDRESS, DENY}:
        names = ", ".join((OWN, BY_ADDRESS, DENY, *policy.tiers))
        raise problem(
            f"there is no tier {unknown!r}", f"use one of {names}", under=("tier", "unknown")
        )
    for client, name in policy.tier.clients.items():
        if name not in policy.tiers:
            names = ", ".join(policy.tiers)
            under = ("tier", "clients", client)
            raise problem(f"there is no tier {name!r}", f"use one of {names}", under=under)
    for name, lines in policy.tiers.items():
        for index, line in enumerate(lines):
            try:
                check_line(line, index, algorithm, count_refused=count_refused)
            except PydanticCustomError as error:
                said = error.context or {}
                raise problem(said["message"], said["hint"], under=("tiers", name, index)) from None


def keyed_lines(lines: tuple[LimitLine, ...], own: tuple[LimitLine, ...]) -> tuple[LimitLine, ...]:
    """Return the limits of a tier; those that name no key have that of the policy's own limit."""
    return tuple(
        line if _HAS_KEY.search(line.text) else replace(line, per=own[min(index, len(own) - 1)].per)
        for index, line in enumerate(lines)
    )
