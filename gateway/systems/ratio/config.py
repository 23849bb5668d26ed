"""The configuration of a ratio listener: which limits apply to which owners and resources.

    ratio: 100/m

    ratio:
      rules:
        - { owner: "pay-*", resource: /v1/**, limit: 10/s }
        - { resource: /health, unlimited: true }
      limit: 100/m

The first rule that matches applies. The limit beside the rules, if there is one, applies to
questions that no rule matches. Limits written here use ratio's algorithm by default: a sliding
window that also counts refused requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.values.base import Model
from gateway.config.values.shorthand_place import ShorthandPlace
from gateway.config.values.types import Duration, ListOf, Switch, problem, problems
from gateway.systems.ratio.rules import ANY, RulePattern

MAX_RULES: Final = 10_000
MAX_PATTERN: Final = 1_000
USUAL: Final[Mapping[str, Any]] = {"algorithm": "sliding_window_log", "count_refused": True}
"""ratio's algorithm."""
_KEPT: Final = " !#$&()+,-./:;<=>?@[]^_`{|}~*"
"""Characters of a pattern that are kept in the name of its policy."""


def _check_pattern(text: str) -> str:
    if len(text) > MAX_PATTERN:
        raise problem(f"a pattern of {len(text)} characters", f"at most {MAX_PATTERN}")
    return text


PatternText = Annotated[str, AfterValidator(_check_pattern)]


class RatioRule(Model):
    """The limits for some questions."""

    owner: PatternText = Field(ANY, description="A pattern of owners; a * stands for any text.")
    resource: PatternText = Field(
        ANY, description="A pattern of resources; a * stands for any text."
    )
    policies: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Names of policies; a limit may be written here instead, as in a route."
    )
    unlimited: Switch = Field(False, description="Whether they are not limited.")

    @model_validator(mode="after")
    def _check_sense(self) -> RatioRule:
        if not self.policies and not self.unlimited:
            message = "this rule has no limit"
            raise problem(message, "such as limit: 10/s; or unlimited: true")
        if self.policies and self.unlimited:
            message = "either a limit or unlimited: not both"
            raise problem(message, "leave one out", under=("unlimited",))
        return self

    @property
    def pattern(self) -> RulePattern:
        """The pattern of its questions."""
        return RulePattern(self.owner, self.resource)


class RatioConfig(Model):
    """The rules for clients of ratio."""

    rules: Annotated[tuple[RatioRule, ...], Field(max_length=MAX_RULES)] = Field(
        (), description="Rules by owner and resource; the first match applies."
    )
    policies: Annotated[tuple[str, ...], ListOf] = Field(
        (),
        description="Names of policies for questions that no rule matches; a limit may be written "
        "here instead, as in a route.",
    )
    unmatched: Literal["allow", "refuse"] = Field(
        "allow",
        description="The answer if no rule matches and there is no limit besides the rules: allow "
        "for OK, refuse for OVER_LIMIT.",
    )
    connection_timeout: Duration = Field(
        1_000_000, description="How long a new connection may take for the first bytes of HTTP/2."
    )

    @model_validator(mode="after")
    def _check_sense(self) -> RatioConfig:
        if not self.rules and not self.policies:
            raise problem("there is no limit", "such as ratio: {limit: 100/m}")
        if self.policies and "unmatched" in self.model_fields_set:
            message = "unmatched has no effect: the limit applies if no rule matches"
            raise problem(message, "leave unmatched out", under=("unmatched",))
        hidden = list(_hidden([rule.pattern for rule in self.rules]))
        if hidden:
            raise problems(hidden)
        return self

    @property
    def policy_names(self) -> tuple[str, ...]:
        """The names of its policies, in order."""
        return (*(name for rule in self.rules for name in rule.policies), *self.policies)


def _hidden(patterns: list[RulePattern]) -> Iterator[PydanticCustomError]:
    """Yield rules that can never match because of an earlier one, in simple cases."""
    first: dict[tuple[str, str], int] = {}
    for index, pattern in enumerate(patterns):
        for key in pattern.wider():
            if key in first:
                message = f"this rule can never match: number {first[key] + 1} takes all of it"
                yield problem(message, "the narrower one first", under=("rules", index))
                break
        first.setdefault(pattern.short(), index)


def find_limits(data: Any, listener: str) -> tuple[Any, list[ShorthandPlace]]:
    """Return the long form of plain data, and the places where limits may be written in it.

    The policy of a rule's own limit is named after the rule's patterns, so that the name stays when
    other rules are added or removed.
    """
    if isinstance(data, str | list | tuple):
        data = {"limits": list(data) if isinstance(data, tuple) else data}
    if not isinstance(data, Mapping):
        return data, []
    found = [ShorthandPlace((), listener, _usual(data))]
    seen: dict[str, int] = {}
    rules = data.get("rules")
    for index, rule in enumerate(rules if isinstance(rules, list | tuple) else ()):
        if not isinstance(rule, Mapping):
            continue
        name = f"{listener}/{_part(rule, 'owner')}:{_part(rule, 'resource')}"
        number = seen[name] = seen.get(name, 0) + 1
        unique = name if number == 1 else f"{name} #{number}"
        found.append(ShorthandPlace(("rules", index), unique, _usual(rule)))
    return data, found


def _usual(body: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return a limit with ratio's algorithm as the default."""
    return {} if "algorithm" in body else USUAL


def _part(rule: Mapping[Any, Any], field: str) -> str:
    return quote(str(rule.get(field, ANY)), safe=_KEPT).strip()
