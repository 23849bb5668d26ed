"""What a request costs under a policy, and which requests count after all."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.lists import read_key
from gateway.config.models.tiers import Tiered
from gateway.config.values.base import Model, untouched
from gateway.config.values.findings import KEY, Path
from gateway.config.values.types import ListOf, Positive, describe, problem
from gateway.limits.expression import Expression, ExpressionError, parse_expression

ONE: Final = parse_expression("1")
OF_ANSWERS: Final = ("status", "bytes", "duration", "reserve")
"""Names without a colon in `settle`; others are `header:NAME` and `json:FIELD` of the response."""
SIZE: Final = "size"
_RESERVED_HINT: Final = "use a number, size, header:NAME, query:NAME, json:NAME and the like"
_SETTLED_HINT: Final = f"use header:NAME, json:NAME, {', '.join(OF_ANSWERS[:-1])} or reserve"
_is_answer_word: Final = re.compile(
    r"header:[A-Za-z0-9_.-]+|json:[A-Za-z0-9_$@:-]+(\.[A-Za-z0-9_$@:-]+)*"
).fullmatch
_is_status: Final = re.compile(r"101|[2-5](?:[0-9]{2}|xx)").fullmatch


def _read(value: object) -> Expression:
    if isinstance(value, Expression):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise problem(f"found {describe(value)}, a cost was expected", "for example 5 or header:X")
    try:
        return parse_expression(str(value))
    except ExpressionError as error:
        raise problem(error.message, error.hint, column=error.column) from None


def _read_reserve(value: object) -> Expression:
    found = _read(value)
    for name in found.names:
        if name == SIZE:
            continue
        if ":" not in name:
            raise problem(f"{name!r} is nothing that a request has", _RESERVED_HINT)
        read_key(name)
    if found.constant is not None and found.constant < 1:
        raise problem("a request costs at least 1", "use except for requests that do not count")
    if not found.names and found.constant is None:
        raise problem(f"{found.text} has no result", "a cost is a number")
    return found


def _read_settle(value: object) -> Expression:
    found = _read(value)
    for name in found.names:
        if name not in OF_ANSWERS and not _is_answer_word(name):
            raise problem(f"{name!r} is nothing that a response tells", _SETTLED_HINT)
    if not found.names:
        message = f"{found.text} does not depend on the response"
        raise problem(message, f"{_SETTLED_HINT}; use reserve for a fixed cost")
    return found


_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}],
        "examples": [5, "1 + size / 64KiB", "first(json:max_tokens, 500)"],
    }
)


class CostConfig(Model):
    """What a request costs, in the unit of the policy's limits."""

    reserve: Annotated[Expression, PlainValidator(_read_reserve), _SCHEMA] = Field(
        ONE,
        description="What it costs before it is forwarded: a number, or an expression with size, "
        "header:NAME, query:NAME, json:NAME and the like; 1 if a value is missing.",
    )
    settle: Annotated[Expression | None, PlainValidator(_read_settle), _SCHEMA] = Field(
        None,
        description="What it has cost, known from the response: an expression with json:NAME, "
        "header:NAME, status, bytes, duration (in seconds) and reserve. The difference is counted "
        "or given back.",
    )
    max_debt: Positive | None = Field(
        None,
        description="How much may be owed at most, beyond an empty limit; default: as much as the "
        "limit allows at once.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_reserve(cls, data: object) -> object:
        return {"reserve": data} if isinstance(data, int | float | str | Expression) else data

    @model_validator(mode="after")
    def _check_debt(self) -> CostConfig:
        if self.max_debt is not None and self.settle is None:
            message = "nothing is owed where the cost is not settled"
            raise problem(message, "add settle, or remove max_debt", under=("max_debt", KEY))
        return self

    @property
    def words(self) -> list[str]:
        """The parts of a request that decide about its cost, such as `header:x-size`."""
        return [read_key(name) for name in self.reserve.names if name != SIZE]

    @property
    def is_own(self) -> bool:
        """Whether it says more than that each request costs what its route says."""
        return bool(self.model_fields_set)


def _read_status(value: object) -> str:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if _is_status(text):
        return text
    raise problem(f"{describe(value)} is not a status", "for example 401, or 4xx")


Status = Annotated[
    str,
    PlainValidator(_read_status),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 101, "maximum": 599},
                {"type": "string", "pattern": "^(101|[2-5]([0-9]{2}|xx))$"},
            ]
        }
    ),
]


class Costed(Tiered):
    """The part of a policy that says what requests cost."""

    cost: CostConfig = Field(
        untouched(CostConfig),
        description="What a request costs under this policy, instead of the cost of its route: a "
        "number, an expression, or a mapping.",
    )
    count_when: Annotated[tuple[Status, ...], ListOf] = Field(
        (),
        description="Statuses of responses, such as 401 or 4xx; the requests with others are given "
        "back. Default: all requests count.",
    )


def cost_words(policy: Costed) -> list[str]:
    """Return the keys by which a policy says what requests cost."""
    words = ["cost"] if policy.cost.is_own else []
    return [*words, "count_when"] if policy.count_when else words


def statuses(count_when: tuple[str, ...]) -> frozenset[int]:
    """Return the statuses that these words stand for."""
    found: set[int] = set()
    for word in count_when:
        if word.endswith("xx"):
            hundreds = int(word[0]) * 100
            found.update(range(hundreds, hundreds + 100))
        else:
            found.add(int(word))
    return frozenset(found)


def check_costs(policy: Costed) -> None:
    """Refuse costs that nothing could keep. Raises `problem`."""
    said: Any = policy
    is_throttlex: bool = said.throttlex is not None
    if policy.cost.is_own and is_throttlex:
        raise _at(("cost", KEY), "a request of a ThrottleX policy costs 1", "remove the cost")
    if policy.cost.settle is not None and policy.count_when:
        message = "a request counts either by its status or by what it has used"
        raise _at(("count_when", KEY), message, "remove count_when or settle")
    if policy.cost.settle is not None:
        place: Path = ("cost", "settle")
    elif policy.count_when:
        place = ("count_when", KEY)
    else:
        return
    if said.mode != "enforce" or said.candidate is not None:
        message = "a limit that is only tried out is not told how requests have ended"
        raise _at(place, message, "use mode: enforce, and no candidate")
    if said.count_refused:
        message = "a policy that counts refused requests gives nothing back"
        raise _at(place, message, "remove count_refused")
    if policy.cost.settle is not None and said.consistency != "strict":
        message = f"the store must know what is owed, and is not asked if {said.consistency}"
        raise _at(place, message, "use strict, which is the default")
    if all(line.limit.algorithm == "concurrency" for line in said.limits):
        raise _at(place, "requests in flight are not counted afterwards", "use a rate")


def _at(place: Path, message: str, hint: str) -> PydanticCustomError:
    return problem(message, hint, under=place)
