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
"""What of a match stays as it is in the name of its policy."""
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
        raise problem("there is nothing in it", _EXAMPLE)
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
    """Which descriptors of a domain are held to which limits."""

    match: MatchField = Field(
        description="The descriptor: its keys in order, each with a value; a * in a value stands "
        "for any text. A list of single keys where one key is there twice."
    )
    policies: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Names of policies; a limit may be written here instead, as in a route."
    )
    unlimited: Switch = Field(
        False, description="Whether nothing limits it, although a rule with a * would."
    )
    refuse: Switch = Field(False, description="Whether it is over its limit always.")
    shadow: Switch = Field(
        False, description="Whether it is counted and told in metrics, but never refused."
    )
    quota: Switch = Field(
        False,
        description="Whether it refuses only together with all other quotas of a request; that it "
        "is over is told.",
    )
    debits: Switch = Field(
        False,
        description="Whether whatever its descriptors cost was used already and counts in any "
        "case; otherwise only where all descriptors of a call say their own hits_addend.",
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
        description="Whether all values that its * stand for have one count; or the keys of "
        "which that is true.",
    )
    name: str | None = Field(None, description="What callers are told as the name of the limit.")
    replaces: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Names of rules that do not count where this one does."
    )
    metadata: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="What Envoy's filters after this one are told of a descriptor that is not over "
        "its limit.",
    )

    @model_validator(mode="after")
    def _check_sense(self) -> EnvoyRule:
        said = [word for word in ("policies", "unlimited", "refuse") if getattr(self, word)]
        if not said:
            raise problem(
                "this rule does not say what the limit is",
                "such as limit: 10/s; or unlimited: true, or refuse: true",
            )
        if len(said) > 1:
            words = ["a limit" if word == "policies" else word for word in said]
            message = f"either {' or '.join(words)}: not both"
            raise problem(message, "leave one out", under=(said[-1],))
        self._check_shared()
        if self.unlimited and (self.quota or self.metadata or self.debits):
            word = "quota" if self.quota else "metadata" if self.metadata else "debits"
            raise problem(f"{word} goes with a limit", "leave it out", under=(word,))
        if self.name and self.name in self.replaces:
            raise problem("a rule cannot replace itself", "the name of another", under=("name",))
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
        """Whether the values of one of its keys have one count."""
        return self.shared if isinstance(self.shared, bool) else key in self.shared


HeaderWords = Literal["none", "envoy", "draft", "legacy", "both"]


class EnvoyHeaders(Model):
    """What the fields of `headers: envoy` are called."""

    limit: str = Field("RateLimit-Limit", description="How many there may be.")
    remaining: str = Field("RateLimit-Remaining", description="How many are left.")
    reset: str = Field("RateLimit-Reset", description="In how many seconds there are more.")

    @field_validator("limit", "remaining", "reset")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not HEADER_NAME.fullmatch(name):
            raise problem(f"{name!r} is not the name of a header", "such as X-Limit")
        # Bodies of refusals have a type.
        if name.lower() in FRAMING | HOP_BY_HOP | {"content-type"}:
            message = f"{name} means something else already"
            raise problem(message, "a name of its own, such as X-Limit")
        return name

    def has(self, name: str) -> bool:
        """Whether one of them is called so, in lower case."""
        return name in {own.lower() for _, own in self}

    @model_validator(mode="after")
    def _check_unlike(self) -> EnvoyHeaders:
        said: dict[str, str] = {}
        for word, name in self:
            first = said.setdefault(name.lower(), word)
            if first != word:
                message = f"{name} is what {first} is called"
                raise problem(message, "a name of its own", under=(word,))
        return self


class EnvoyRlsConfig(Model):
    """The domains for Envoy, and the details of the answers."""

    domains: dict[
        str, Annotated[tuple[EnvoyRule, ...], Field(min_length=1, max_length=MAX_RULES)]
    ] = Field(
        min_length=1,
        description="Rules by domain; what no rule of its domain matches is not limited.",
    )
    headers: HeaderWords = Field(
        "none",
        description="Fields that Envoy adds to the response: envoy (RateLimit-Limit, -Remaining, "
        "-Reset), draft (RateLimit, RateLimit-Policy), legacy (X-RateLimit-*), both or none.",
    )
    header_names: EnvoyHeaders = Field(
        EnvoyHeaders(), description="What the fields of headers: envoy are called."
    )
    body: str = Field(
        "none",
        description="What Envoy answers a refused request with: none, problem (RFC 9457, JSON), "
        "text (one line), or any other text, which is sent as it is.",
    )
    shadow: Switch = Field(
        False, description="Whether nothing is refused, whatever the rules say, but all is counted."
    )
    quota: Switch = Field(
        False,
        description="Whether a request is refused only if all of its descriptors are over their "
        "limits, whatever the rules say.",
    )
    debits: Switch = Field(
        True,
        description="Whether hits may be told after the fact (apply_on_stream_done): they count "
        "whatever the limit says then, up to one limit more.",
    )
    overrides: Switch = Field(
        True,
        description="Whether a descriptor that brings a limit of its own is held to that, as its "
        "sender's configuration says.",
    )
    dynamic_metadata: Switch = Field(
        False,
        description="Whether Envoy's filters after this one are told what was asked, and the "
        "metadata of rules.",
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
            message = f"there are no such fields, for headers is {self.headers}"
            raise problem(message, "headers: envoy", under=("header_names",))
        for domain, rules in self.domains.items():
            for index, rule in enumerate(rules):
                if rule.debits and not self.debits:
                    message = "nothing is counted this way, because debits is off"
                    where = ("domains", domain, index, "debits")
                    raise problem(message, "leave debits: off out, beside domains", under=where)
                if rule.metadata and not self.dynamic_metadata:
                    message = "it is not sent, because dynamic_metadata is off"
                    where = ("domains", domain, index, "metadata")
                    raise problem(message, "dynamic_metadata: on, beside domains", under=where)
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
    """What a rule's own limit is known by; a number if its match cannot be read."""
    try:
        text = show_match(_read_match(match))
    except ValueError:
        text = str(index + 1)  # The model says what is wrong with it.
    return policy_name(str(domain), text)


def policy_name(domain: str, rule: str) -> str:
    """The name of the policy of a rule: its domain and what it matches, as names may be."""
    return quote(f"{domain}/{rule}".strip(), safe=_KEPT)
