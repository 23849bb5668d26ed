"""The configuration of a listener for Envoy's rate limit service (`envoy.service.ratelimit.v3`).

Envoy sends descriptors, each a list of keys with values. The domains map them to limits, with one
rule for each kind of descriptor:

    envoy_rls:
      domains:
        shop:
          - { match: { database: users }, limit: 500/s }
          - { match: { remote_address: "*" }, limit: 10/s burst 20 }

A `*` in a value matches any text. Every descriptor has its own count, so each value that a `*`
matches has one too, unless the rule has `shared`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import quote

from pydantic import (
    Field,
    JsonValue,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from gateway.config.values.base import Model
from gateway.config.values.header_names import FRAMING, HEADER_NAME, HOP_BY_HOP
from gateway.config.values.shorthand_place import ShorthandPlace
from gateway.config.values.types import ListOf, Switch, describe, problem

Match = tuple[tuple[str, str], ...]
"""The keys of a descriptor in order, each with its value or a pattern of values."""

ANY: Final = "*"
"""A value that any other is like."""

MAX_ENTRIES: Final = 32
MAX_RULES: Final = 100_000
_KEPT: Final = " !#$&()+,-./:;<=>?@[]^_`{|}~*"
"""Characters of a match that are kept in the name of its policy."""
_NEEDLESS: Final = re.compile(r"\*\*+")
_EXAMPLE: Final = 'such as match: {remote_address: "*"}'


def _read_match(value: object) -> Match:
    if isinstance(value, Mapping):
        pairs = list(value.items())
        places: list[tuple[str | int, ...]] = [(str(key),) for key in value]
    elif isinstance(value, list | tuple):
        pairs, places = [], []
        for index, one in enumerate(value):
            if not isinstance(one, Mapping) or len(one) != 1:
                message = f"found {describe(one)}, one key and its value were expected"
                raise problem(message, 'such as [{path: /v1/*}, {user: "*"}]', under=(index,))
            pairs += one.items()
            places += [(index, str(key)) for key in one]
    else:
        raise problem(f"found {describe(value)}, a mapping was expected", _EXAMPLE)
    if not pairs:
        raise problem("it is empty", _EXAMPLE)
    if len(pairs) > MAX_ENTRIES:
        raise problem(f"{len(pairs)} keys are too many", f"at most {MAX_ENTRIES}")
    return tuple(
        _read_pair(key, found, place) for (key, found), place in zip(pairs, places, strict=True)
    )


def _read_pair(key: object, value: object, place: tuple[str | int, ...]) -> tuple[str, str]:
    if not isinstance(key, str) or not key:
        raise problem(f"found {describe(key)}, the key of a descriptor was expected", under=place)
    if value is None:
        raise problem(f"{key} has no value", f'write "*" for any: {key}: "*"', under=place)
    if isinstance(value, bool) or not isinstance(value, str | int):
        shown = str(value).lower() if isinstance(value, bool) else value
        hint = f'quote it: "{shown}"' if isinstance(value, bool | float) else ""
        raise problem(f"found {describe(value)}, text was expected", hint, under=place)
    # Several in a row say no more than one.
    return key, _NEEDLESS.sub(ANY, str(value))


def show_match(match: Match) -> str:
    """A match in one line, such as `path=/v1/*,remote_address=*`."""
    return ",".join(f"{key}={value}" for key, value in match)


_PAIRS: Final = {
    "type": "object",
    "propertyNames": {"minLength": 1},
    "additionalProperties": {"type": ["string", "integer"]},
}

MatchField = Annotated[
    Match,
    PlainValidator(_read_match),
    WithJsonSchema(
        {
            "anyOf": [
                {**_PAIRS, "minProperties": 1, "maxProperties": MAX_ENTRIES},
                {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": MAX_ENTRIES,
                    "items": {**_PAIRS, "minProperties": 1, "maxProperties": 1},
                },
            ],
            "examples": [{"remote_address": ANY}],
        }
    ),
]


def _read_shared(value: object) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if value in ("on", "off"):
        return value == "on"
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple) and names and all(isinstance(one, str) for one in names):
        return tuple(names)
    hint = "true for all of them, or the keys whose values share one count"
    raise problem(f"found {describe(value)}", hint)


class EnvoyRule(Model):
    """The limits for some descriptors of a domain."""

    match: MatchField = Field(
        description="The descriptor: its keys in order, each with a value; a * in a value stands "
        "for any text. If a key occurs twice, a list of single keys."
    )
    policies: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Names of policies; a limit may be written here instead, as in a route."
    )
    unlimited: Switch = Field(
        False, description="Whether it is not limited, even if a rule with a * would limit it."
    )
    refuse: Switch = Field(False, description="Whether it is always over its limit.")
    shadow: Switch = Field(
        False, description="Whether it is counted and shown in metrics, but never refused."
    )
    quota: Switch = Field(
        False,
        description="Whether it refuses only together with all other quotas of a request; the "
        "answer still shows that it is over.",
    )
    debits: Switch = Field(
        False,
        description="Whether the cost of its descriptors was already used and always counts; by "
        "default only if all descriptors of a call have their own hits_addend.",
    )
    shared: Annotated[
        bool | tuple[str, ...],
        PlainValidator(_read_shared),
        WithJsonSchema(
            {
                "anyOf": [
                    {"enum": [True, False, "on", "off"]},
                    {"type": "string"},
                    {"type": "array", "minItems": 1, "items": {"type": "string"}},
                ]
            }
        ),
    ] = Field(
        False,
        description="Whether all values that a * matches share one count; or the keys for which "
        "they do.",
    )
    name: str | None = Field(None, description="The name of the limit in answers to callers.")
    replaces: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Names of rules that do not apply if this one does."
    )
    metadata: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Metadata for Envoy's later filters if a descriptor is not over its limit.",
    )

    @model_validator(mode="after")
    def _check_sense(self) -> EnvoyRule:
        said = [word for word in ("policies", "unlimited", "refuse") if getattr(self, word)]
        if not said:
            raise problem(
                "this rule has no limit",
                "such as limit: 10/s; or unlimited: true, or refuse: true",
            )
        if len(said) > 1:
            words = ["a limit" if word == "policies" else word for word in said]
            message = f"either {' or '.join(words)}: not both"
            raise problem(message, "leave one out", under=(said[-1],))
        self._check_shared()
        if self.unlimited and (self.quota or self.metadata or self.debits):
            word = "quota" if self.quota else "metadata" if self.metadata else "debits"
            raise problem(f"{word} requires a limit", "leave it out", under=(word,))
        if self.name and self.name in self.replaces:
            raise problem(
                "a rule cannot replace itself", "use the name of another", under=("name",)
            )
        return self

    def _check_shared(self) -> None:
        wild = [key for key, value in self.match if ANY in value]
        if self.shared is True and not wild:
            message = "there is no * whose values could share a count"
            raise problem(message, "leave shared out", under=("shared",))
        for index, key in enumerate(self.shared if isinstance(self.shared, tuple) else ()):
            if key not in wild:
                message = f"{key!r} has no * in this match"
                hint = f"one of {', '.join(wild)}" if wild else "leave shared out"
                raise problem(message, hint, under=("shared", index))

    def is_shared(self, key: str) -> bool:
        """Return whether the values of one of its keys share one count."""
        return self.shared if isinstance(self.shared, bool) else key in self.shared


HeaderWords = Literal["none", "envoy", "draft", "legacy", "both"]


class EnvoyHeaders(Model):
    """The names of the fields of `headers: envoy`."""

    limit: str = Field("RateLimit-Limit", description="The limit.")
    remaining: str = Field("RateLimit-Remaining", description="The remainder.")
    reset: str = Field("RateLimit-Reset", description="The seconds until the limit is reset.")

    @field_validator("limit", "remaining", "reset")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not HEADER_NAME.fullmatch(name):
            raise problem(f"{name!r} is not the name of a header", "such as X-Limit")
        # Bodies of refusals have a type.
        if name.lower() in FRAMING | HOP_BY_HOP | {"content-type"}:
            message = f"{name} already has another meaning"
            raise problem(message, "use another name, such as X-Limit")
        return name

    def has(self, name: str) -> bool:
        """Return whether one of them has this name, in lower case."""
        return name in {own.lower() for _, own in self}

    @model_validator(mode="after")
    def _check_unlike(self) -> EnvoyHeaders:
        said: dict[str, str] = {}
        for word, name in self:
            first = said.setdefault(name.lower(), word)
            if first != word:
                message = f"{name} is already the name of {first}"
                raise problem(message, "use another name", under=(word,))
        return self


class EnvoyRlsConfig(Model):
    """The domains for Envoy, and the details of the answers."""

    domains: dict[
        str, Annotated[tuple[EnvoyRule, ...], Field(min_length=1, max_length=MAX_RULES)]
    ] = Field(
        min_length=1,
        description="Rules by domain; descriptors without a matching rule are not limited.",
    )
    headers: HeaderWords = Field(
        "none",
        description="Fields that Envoy adds to the response: envoy (RateLimit-Limit, -Remaining, "
        "-Reset), draft (RateLimit, RateLimit-Policy), legacy (X-RateLimit-*), both or none.",
    )
    header_names: EnvoyHeaders = Field(
        EnvoyHeaders(), description="The names of the fields of headers: envoy."
    )
    body: str = Field(
        "none",
        description="The body of Envoy's response to a refused request: none, problem (RFC 9457, "
        "JSON), text (one line), or any other text, which is sent as it is.",
    )
    shadow: Switch = Field(
        False,
        description="Whether everything is counted and nothing refused.",
    )
    quota: Switch = Field(
        False,
        description="Whether a request is refused only if all of its descriptors are over their "
        "limits, whatever the rules are.",
    )
    debits: Switch = Field(
        True,
        description="Whether hits may be reported after the fact (apply_on_stream_done): they "
        "count even above the limit, by at most the limit once more.",
    )
    overrides: Switch = Field(
        True,
        description="Whether a limit in a descriptor, from the configuration of its sender, "
        "replaces that of the rule.",
    )
    dynamic_metadata: Switch = Field(
        False,
        description="Whether Envoy's later filters receive the question and the metadata of rules.",
    )

    @field_validator("domains")
    @classmethod
    def _check_domains(
        cls, domains: dict[str, tuple[EnvoyRule, ...]]
    ) -> dict[str, tuple[EnvoyRule, ...]]:
        for domain, rules in domains.items():
            if not domain:
                raise problem("a domain has a name", "such as shop", under=(domain,))
            _check_unlike(domain, rules)
            _check_replaced(domain, rules)
        return domains

    @model_validator(mode="after")
    def _check_told(self) -> EnvoyRlsConfig:
        if "header_names" in self.model_fields_set and self.headers != "envoy":
            message = f"header_names has no effect with headers: {self.headers}"
            raise problem(message, "set headers: envoy", under=("header_names",))
        for domain, rules in self.domains.items():
            for index, rule in enumerate(rules):
                if rule.debits and not self.debits:
                    message = "debits is off for this listener"
                    where = ("domains", domain, index, "debits")
                    raise problem(message, "leave out debits: off next to domains", under=where)
                if rule.metadata and not self.dynamic_metadata:
                    message = "metadata is not sent, because dynamic_metadata is off"
                    where = ("domains", domain, index, "metadata")
                    raise problem(message, "set dynamic_metadata: on next to domains", under=where)
        return self

    @property
    def policy_names(self) -> tuple[str, ...]:
        """The policies that its rules name, each once."""
        named = [
            name for rules in self.domains.values() for rule in rules for name in rule.policies
        ]
        return tuple(dict.fromkeys(named))


def _check_unlike(domain: str, rules: tuple[EnvoyRule, ...]) -> None:
    seen: dict[Match, int] = {}
    for index, rule in enumerate(rules):
        first = seen.setdefault(rule.match, index)
        if first != index:
            message = f"{show_match(rule.match)} is matched by an earlier rule of this domain"
            hint = f"put both in one: it is number {first + 1}"
            raise problem(message, hint, under=(domain, index, "match"))


def _check_replaced(domain: str, rules: tuple[EnvoyRule, ...]) -> None:
    names = list(dict.fromkeys(rule.name for rule in rules if rule.name))
    for index, rule in enumerate(rules):
        for place, name in enumerate(rule.replaces):
            if name not in names:
                message = f"no rule of this domain is named {name!r}"
                hint = f"names are {', '.join(names[:8])}" if names else "give that rule its name"
                raise problem(message, hint, under=(domain, index, "replaces", place))


def find_limits(data: Any, listener: str) -> tuple[Any, list[ShorthandPlace]]:
    """The rules of plain data that may say limits, and the policies that these become.

    These are named after their domain and what they match, in whichever listener that is.
    """
    del listener
    domains = data.get("domains") if isinstance(data, Mapping) else None
    found: list[ShorthandPlace] = []
    seen: dict[str, int] = {}
    for domain, rules in domains.items() if isinstance(domains, Mapping) else ():
        for index, rule in enumerate(rules if isinstance(rules, list | tuple) else ()):
            if not isinstance(rule, Mapping):
                continue
            name = _name(domain, rule.get("match"), index)
            number = seen[name] = seen.get(name, 0) + 1
            unique = name if number == 1 else f"{name} #{number}"
            found.append(ShorthandPlace(("domains", domain, index), unique, {}))
    return data, found


def _name(domain: object, match: object, index: int) -> str:
    """Return the name of a rule's own limit; a number if its match cannot be read."""
    try:
        text = show_match(_read_match(match))
    except ValueError:
        text = str(index + 1)  # The model says what is wrong with it.
    return policy_name(str(domain), text)


def policy_name(domain: str, rule: str) -> str:
    """The name of the policy of a rule: its domain and what it matches, as names may be."""
    return quote(f"{domain}/{rule}".strip(), safe=_KEPT)
