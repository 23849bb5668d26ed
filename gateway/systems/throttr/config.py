"""The configuration of a Throttr listener.

    throttr: v2
    throttr: { version: v5, size: 32, max_records: 200000 }

Its clients keep records of their own in it; the limits of the configuration do not apply to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from gateway.base.clock import US
from gateway.config.values.base import Model
from gateway.config.values.shorthand_place import ShorthandPlace
from gateway.config.values.types import Duration, Positive, Size, WholeNumber, problem
from gateway.systems.throttr.codec_v5 import SIZES, USUAL_SIZE

SHORTEST_MAX: Final = 1024
"""Bytes of a message that every version must accept."""
SMALLEST: Final = 1024
"""The most bytes that a counter takes."""


class ThrottrConfig(Model):
    """The version of the protocol, and its bounds."""

    version: Literal["v2", "v5"] = Field(
        description="The clients' version of the protocol, which messages do not show: v2 "
        "for servers 2.x, v5 for servers 4.x.",
    )
    size: WholeNumber | None = Field(
        None,
        description="Bits of a quota, a ttl and a buffer's length in v5: 8, 16, 32 or 64, as in "
        "the clients; by default 16.",
        json_schema_extra={"enum": [*SIZES, None]},
    )
    max_records: Positive = Field(
        1_000_000, description="The most records in memory; further ones are refused."
    )
    max_memory: Size = Field(
        256 * 1024 * 1024, description="The most memory for records; further ones are refused."
    )
    max_message: Size = Field(
        128 * 1024,
        description="The longest message; a longer one ends its connection.",
    )
    max_connections: Positive = Field(
        1024, description="The most connected clients; further ones are refused."
    )
    message_timeout: Duration = Field(
        10 * US,
        description="How long a message may take to arrive, and answers may take to be read.",
    )

    @field_validator("size")
    @classmethod
    def _check_size(cls, size: int | None) -> int | None:
        if size is not None and size not in SIZES:
            raise problem(f"Throttr has no values of {size} bits", "8, 16, 32 or 64")
        return size

    @field_validator("max_memory")
    @classmethod
    def _check_max_memory(cls, size: int) -> int:
        if size < SMALLEST:
            message = f"no record fits into {size} bytes, and all would be refused"
            raise problem(message, f"at least {SMALLEST}")
        return size

    @field_validator("max_message")
    @classmethod
    def _check_max_message(cls, size: int) -> int:
        if size < SHORTEST_MAX:
            raise problem(f"messages may have more than {size} bytes", f"at least {SHORTEST_MAX}")
        return size

    @model_validator(mode="after")
    def _check_version(self) -> ThrottrConfig:
        if self.version == "v2" and self.size is not None:
            message = "values of Throttr v2 always have 64 bits"
            raise problem(message, "leave it out, or version: v5", under=("size",))
        return self

    @property
    def bits(self) -> int:
        """Bits of a value; always 64 in version 2."""
        return 64 if self.version == "v2" else self.size or USUAL_SIZE


def long_form(data: Any, listener: str) -> tuple[Any, list[ShorthandPlace]]:  # noqa: ARG001
    """Return a listener's part as a mapping, if it is only the version; it has no limits."""
    if isinstance(data, str):
        return {"version": data}, []
    return (dict(data) if isinstance(data, Mapping) else data), []
