"""What clients are told: refusals, and options of responses that routes have by default."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from gateway.config.models.consistency import PART_PATTERN
from gateway.config.values.base import Model
from gateway.config.values.types import Off, describe, problem

UpstreamLimits = Literal["replace", "keep", "merge"]
"""What happens to an upstream's own fields about limits."""

MAX_JITTER: Final = 10.0
"""In per cent: clients should not have to wait for much longer than necessary."""


def _read_jitter(value: object) -> str:
    found = re.fullmatch(PART_PATTERN, value) if isinstance(value, str) else None
    if found is None or not 0 < float(found[1]) <= MAX_JITTER:
        hint = "use a share from 0.001% to 10%, for example 10%, or off"
        raise problem(f"{describe(value)} is not valid here", hint)
    return f"{float(found[1]):g}%"


Jitter = Annotated[
    str,
    PlainValidator(_read_jitter),
    WithJsonSchema({"type": "string", "pattern": PART_PATTERN, "examples": ["10%"]}),
]


class OnLimit(Model):
    """The response to a request over its limit."""

    status: Literal[429, 503] = Field(429, description="The status code.")
    body: str = Field(
        "problem",
        description="problem (RFC 9457, JSON), text (one line), throttlex (ThrottleX's JSON), "
        "none, or any other text, which is sent as it is.",
    )
    jitter: Annotated[Jitter | None, Off] = Field(
        None,
        description="By how much Retry-After is lengthened at most, at random, so that clients do "
        "not come back together: a share up to 10%, or off.",
    )
