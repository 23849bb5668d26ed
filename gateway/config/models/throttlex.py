"""ThrottleX policies: its names, types and defaults, and the keys that it counts by.

The names are those of its admin API (low-level design, section 4), so that a policy can be copied
unchanged. `gateway.limits.throttlex` has the meaning of the numbers,
`gateway.routing.throttlex_key` the form of keys.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, field_validator, model_validator

from gateway.base.clock import US
from gateway.base.errors import LimitSyntaxError
from gateway.config.values.base import Model
from gateway.config.values.findings import KEY
from gateway.config.values.lines import MAX_LOG_COUNT
from gateway.config.values.types import (
    LimitLine,
    ListOf,
    Positive,
    WholeNumber,
    describe,
    problem,
    whole_number_schema,
)
from gateway.limits.cursor import Cursor
from gateway.limits.key_words import CLIENT_CERTIFICATE, read_keys
from gateway.limits.notation import MAX_FILL_US, MAX_PER_SECOND, MAX_PERIOD_US
from gateway.limits.throttlex import DEFAULTS, SLIDING_WINDOW, TOKEN_BUCKET, Numbers, limit_of

MAX_WINDOW_S: Final = MAX_PERIOD_US // US
RATE_PATTERN: Final = r"^\s*[0-9]{1,8}(\.[0-9]{1,6})?\s*$"

Word = Literal["ip", "api_key", "user", "route"]
ORDER: Final[tuple[Word, ...]] = ("ip", "api_key", "user", "route")
"""The order of a key's parts (design, section 2.1)."""


def _read_rate(value: object) -> Fraction:
    if isinstance(value, Fraction):
        return value
    # Added to nothing, a number is as Python writes it, and not as the file does.
    text = str(value + 0 if isinstance(value, int | float) else value)
    if isinstance(value, bool) or not re.fullmatch(RATE_PATTERN, text):
        hint = "tokens a second, such as 10 or 0.5; 0 never refills"
        raise problem(f"{describe(value)} is not valid here", hint)
    rate = Fraction(text.strip())
    if rate > MAX_PER_SECOND:
        raise problem(f"{text.strip()} tokens a second", f"use at most {MAX_PER_SECOND}")
    return rate


Rate = Annotated[
    Fraction,
    PlainValidator(_read_rate),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": MAX_PER_SECOND},
                {"type": "string", "pattern": RATE_PATTERN},
            ],
            "examples": [10, 0.5],
        }
    ),
]
"""Tokens per second, exactly; written `10` or `0.5`."""


_KINDS: Final = frozenset(("header", "cookie", "query", "jwt", "json", "form", CLIENT_CERTIFICATE))
"""What an API key or a user can be in."""


def _read_key_word(value: object) -> str:
    """A key word for a value of the request: `header:x-user-id`."""
    text = value.strip() if isinstance(value, str) else ""
    try:
        if not text:
            raise problem(f"{describe(value)} is not valid here", "for example header:X-User-Id")
        line = Cursor(text)
        words = read_keys(line)
    except LimitSyntaxError as error:
        raise problem(error.reason, error.hint, column=error.column) from None
    is_one = len(words) == 1 and line.position == len(text)
    if not is_one or words[0].partition(":")[0] not in _KINDS:
        raise problem(
            f"{text!r} does not name a value of the request", "for example header:X-User-Id"
        )
    return words[0]


KeyWord = Annotated[
    str,
    PlainValidator(_read_key_word),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\s*((header|cookie|query|jwt|json|form):[^\s/+]+"
            r"|client_cert(:(subject|san|fingerprint))?)\s*$",
            "examples": ["header:X-User-Id", "client_cert:subject"],
        }
    ),
]


class ThrottlexConfig(Model):
    """A limit in ThrottleX's notation, with ThrottleX's defaults."""

    type: Literal["TOKEN_BUCKET", "SLIDING_WINDOW"] = Field(
        TOKEN_BUCKET, description="TOKEN_BUCKET refills continuously; SLIDING_WINDOW keeps a log."
    )
    capacity: Positive = Field(
        DEFAULTS.capacity, description="Tokens of a full bucket, or requests in a window."
    )
    refillRate: Rate = Field(  # noqa: N815 - its name
        Fraction(DEFAULTS.refill_rate),
        description="Tokens per second, also a fraction; 0 never refills. Only for buckets.",
    )
    windowSeconds: Annotated[  # noqa: N815 - its name
        WholeNumber, Field(ge=1, le=MAX_WINDOW_S), whole_number_schema(1, MAX_WINDOW_S)
    ] = Field(DEFAULTS.window_seconds, description="The length of a window. Only for windows.")
    per: Annotated[tuple[Word, ...], Field(min_length=1), ListOf] = Field(
        ("ip",),
        description="The parts of a key, always in ThrottleX's order: ip, api_key, user, route.",
    )
    api_key: KeyWord = Field(
        "header:x-api-key", description="The key word of the API key, as in a limit."
    )
    user: KeyWord | None = Field(
        None,
        description="The key word of the authenticated user, such as header:X-User-Id if an "
        "application in front of this gateway authenticates users, or client_cert.",
    )
    route: Literal["name", "path"] = Field(
        "name",
        description="The part route of a key: the name of the route, which defaults to its "
        "pattern; or the path of the request, as in ThrottleX's design.",
    )
    policies: Literal["own", "table"] = Field(
        "own",
        description="own to use these numbers only; table to look up each key in "
        "throttlex_policy of the MySQL store, with these numbers for keys without a "
        "row.",
    )

    @field_validator("per")
    @classmethod
    def _in_order(cls, per: tuple[Word, ...]) -> tuple[Word, ...]:
        for place, word in enumerate(per):
            if word in per[:place]:
                raise problem(f"{word!r} is named twice", "name each key once", under=(place,))
        return tuple(word for word in ORDER if word in per)

    @model_validator(mode="after")
    def _check_numbers(self) -> ThrottlexConfig:
        if "user" in self.per and self.user is None:
            message = "the user of a request is not configured"
            hint = (
                "set user: header:X-User-Id, if only your own proxy can set it; or user: "
                "client_cert"
            )
            raise problem(message, hint, under=("per",))
        if "route" in self.model_fields_set and "route" not in self.per:
            message = "route has no effect, because keys have no such part"
            raise problem(message, "add it: per: [user, route]; or remove route", under=("route",))
        if self.type == SLIDING_WINDOW and self.capacity > MAX_LOG_COUNT:
            message = f"{SLIDING_WINDOW} would keep {self.capacity} times per key"
            hint = f"use at most {MAX_LOG_COUNT}; {TOKEN_BUCKET} keeps one number"
            raise problem(message, hint, under=("capacity",))
        rate = self.refillRate
        if self.type == TOKEN_BUCKET and rate and self.capacity * US > rate * MAX_FILL_US:
            message = "an empty bucket would take more than ten years to fill"
            raise problem(
                message, "use a higher refillRate; or 0, which never refills", under=(KEY,)
            )
        return self

    @property
    def numbers(self) -> Numbers:
        """Return the numbers of the limit."""
        return Numbers(self.type, self.capacity, self.refillRate, self.windowSeconds)

    @property
    def line(self) -> LimitLine:
        """Return it as an ordinary limit."""
        sources: dict[Any, str | None] = {"api_key": self.api_key, "user": self.user}
        if self.route == "path":
            sources["route"] = "path"
        words = tuple(sources.get(word) or word for word in self.per)
        return LimitLine(str(self.numbers), limit_of(self.numbers), words)


PLACEHOLDER: Final = LimitLine("", limit_of(DEFAULTS), ("ip",))
"""A placeholder for the line until `ThrottlexConfig` is read."""
