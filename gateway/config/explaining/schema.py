"""The JSON Schema of a configuration, for completion and checks in editors.

It is made from the models, with the short forms that `shorthand` and the models' own parsers
accept. It describes which keys and values are allowed where; only `check` finds unknown policies,
routes that never match, and the like.
"""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from itertools import combinations
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gateway.config.explaining.schema_listeners import complete_listeners
from gateway.config.models.gateway import Address, GatewayConfig, ListenerConfig, RouteConfig
from gateway.config.models.shorthand import LIMIT_FIELDS, LINE_FIELDS, POLICY_FIELDS
from gateway.config.values.lines import COUNTS_REFUSED, WITH_BURST
from gateway.config.values.units import write_number

Schema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_REFERENCE: Final[Schema] = {"$ref": "#/$defs/Reference"}
_URL: Final[Schema] = {
    "type": "string",
    "pattern": r"^\s*([hH][tT][tT][pP][sS]?://[^/?#@\s]+/?|unix:/.*[^/\s])\s*$",
    "examples": ["http://127.0.0.1:9000", "unix:/run/app.sock"],
}

_NAME: Final = r"^[!#-\[\]-~]([ !#-\[\]-~]*[!#-\[\]-~])?$"
_METHODS: Final = r"[A-Z][A-Z0-9_-]*(\s*,\s*[A-Z][A-Z0-9_-]*)*\s+"
_HOST: Final = r"[^\s/]+"
_PATTERNS: Final = {
    r"^\s*/": (),
    rf"^\s*{_HOST}/": ("host",),
    rf"^\s*{_METHODS}/": ("methods",),
    rf"^\s*{_METHODS}{_HOST}/": ("host", "methods"),
}
"""Patterns of routes, and keys that a route may not repeat because its pattern has them."""


class _Generator(GenerateJsonSchema):
    """Omits defaults: they are values, and a file contains text."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def json_schema() -> Schema:
    """Return the schema as plain data, to be written as JSON."""
    root = GatewayConfig.model_json_schema(schema_generator=_Generator)
    definitions: dict[str, Schema] = root.pop("$defs")
    known = models(GatewayConfig)
    for name, definition in (*definitions.items(), ("GatewayConfig", root)):
        # What a route does not say is as its upstream or the whole file has it.
        if name in known and name != RouteConfig.__name__:
            _add_defaults(definition, known[name])
    root["properties"]["policies"]["propertyNames"] = {"pattern": _NAME}
    _complete_target(definitions["Target"])
    _complete_policy(definitions["PolicyConfig"])
    _complete_candidate(definitions["CandidateConfig"])
    _complete_routes(root, definitions)
    complete_listeners(root, definitions, _limited(definitions))
    _add_short_forms(definitions)
    _drop_titles(root)
    for definition in definitions.values():
        _drop_titles(definition)
    root = _with_references(root)
    root["patternProperties"] = {"^x-": {"description": "Anything, to hold anchors."}}
    root["$defs"] = {
        **{name: _with_references(definition) for name, definition in definitions.items()},
        "Reference": {
            "type": "string",
            "pattern": r"\$\{",
            "description": "Text with ${VARIABLE}, ${VARIABLE:-default} or ${file:/path}.",
        },
    }
    return {"$schema": DIALECT, "title": "Sluice gateway", **root}


def models(kind: Any) -> dict[str, type[BaseModel]]:
    """All models that a file may hold, by name."""
    found: dict[str, type[BaseModel]] = {}
    left = [kind]
    while left:
        one = left.pop()
        if not (isinstance(one, type) and issubclass(one, BaseModel)):
            left += get_args(one)
        elif one.__name__ not in found:
            found[one.__name__] = one
            left += [field.annotation for field in one.model_fields.values()]
    return found


def written_default(model: type[BaseModel], name: str) -> object:
    """Return the default of a field as a file would write it; None if there is none to show."""
    info = model.model_fields[name]
    default = None if info.is_required() else info.default
    properties = model.model_json_schema(schema_generator=_Generator)["properties"]
    schema = repr(properties[name])
    if default is None:
        return "off" if "'off'" in schema else None
    if isinstance(default, bool | str):
        return default
    if isinstance(default, int | Fraction):
        return write_number(int(default), schema)
    addresses = default if isinstance(default, tuple) else (default,)
    shown = [str(one) for one in addresses if isinstance(one, Address | ListenerConfig | int | str)]
    return ", ".join(shown) or None


def _add_defaults(definition: Schema, model: type[BaseModel]) -> None:
    for name, schema in definition["properties"].items():
        default = written_default(model, name)
        if default is not None:
            schema["default"] = default


# Short forms.


def _complete_target(target: Schema) -> None:
    target["properties"] = {"url": _URL, "weight": target["properties"]["weight"]}
    target["required"] = ["url"]


def _complete_candidate(candidate: Schema) -> None:
    candidate["properties"]["limit"] = candidate["properties"]["limits"]
    candidate.pop("required")
    candidate["oneOf"] = [{"required": [name]} for name in LINE_FIELDS]


def _complete_policy(policy: Schema) -> None:
    policy["properties"]["limit"] = policy["properties"]["limits"]
    policy.pop("required")
    policy["oneOf"] = [{"required": [name]} for name in LIMIT_FIELDS]
    policy["allOf"] = _limits_and_fields()


_NO_BURST: Final[Schema] = {"not": {"pattern": r"\sburst\s"}}
_AT_ONCE: Final[Schema] = {"pattern": r"\sonce(\s|$)"}
_NO_RATE: Final[Schema] = {"pattern": r"\s(once|in)(\s|$)"}
_IS_ON: Final[Schema] = {"enum": [True, "on"]}
_IS_QUEUE: Final[Schema] = {"type": "object"}


def _limits_and_fields() -> list[Schema]:
    """The rules of `check_line` for limits and other fields, as far as a schema expresses them."""
    has_burst: Schema = {"enum": list(WITH_BURST)}
    can_count: Schema = {"enum": list(COUNTS_REFUSED)}
    is_concurrency: Schema = {"const": "concurrency"}
    not_all_at_once = _some_line({"not": _AT_ONCE})
    return [
        {"if": _with_field("algorithm", {"not": has_burst}), "then": _each_line(_NO_BURST)},
        {"if": _with_field("algorithm", is_concurrency), "then": _each_line(_AT_ONCE)},
        {"if": _with_field("lease", {}), "then": _some_line(_AT_ONCE)},
        {"if": _with_field("queue", _IS_QUEUE), "then": not_all_at_once},
        {
            "if": {"required": ["throttlex"]},
            "then": {
                "not": {
                    "anyOf": [
                        {"required": [name]} for name in ("algorithm", "lease", "count_refused")
                    ]
                }
            },
        },
        {
            "if": _with_field("count_refused", _IS_ON),
            "then": {
                "not": _with_field("queue", _IS_QUEUE),
                "anyOf": [_with_field("algorithm", can_count), _each_line(_NO_RATE)],
            },
        },
    ]


def _with_field(field: str, value: Schema) -> Schema:
    return {"properties": {field: value}, "required": [field]}


def _each_line(line: Schema) -> Schema:
    limits = {"if": {"type": "array"}, "then": {"items": line}, "else": line}
    return {"properties": dict.fromkeys(LINE_FIELDS, limits)}


def _some_line(line: Schema) -> Schema:
    limits = {"if": {"type": "array"}, "then": {"contains": line}, "else": line}
    return {"properties": dict.fromkeys(LINE_FIELDS, limits)}


def _complete_routes(root: Schema, definitions: dict[str, Schema]) -> None:
    route = definitions.pop("RouteConfig")
    name_of_one: Schema = {"type": "string", "not": {"pattern": "://"}}
    route["properties"]["upstream"] = {
        "description": route["properties"]["upstream"]["description"],
        "anyOf": [name_of_one, _URL],
    }
    limited = _limited(definitions)
    route["properties"] |= limited.pop("properties")
    # Beside a limit of the route's own, it may be that of a policy.
    own_cost = route["properties"]["cost"]
    description = own_cost.pop("description")
    any_cost = {"anyOf": [own_cost, {"$ref": "#/$defs/CostConfig"}]}
    route["properties"]["cost"] = {"description": description, **any_cost}
    route |= limited
    route["oneOf"] = [{"required": [name]} for name in ("upstream", "redirect", "respond")]
    listed = definitions["ListedRoute"] = deepcopy(route)
    listed["required"] = ["path"]
    patterns = {}
    for pattern, said in _PATTERNS.items():
        name = "Route" + "".join(word.capitalize() for word in said)
        one = definitions[name] = deepcopy(route)
        one["required"] = []
        for field in ("path", *said):
            del one["properties"][field]
        reference = {"$ref": f"#/$defs/{name}"}
        patterns[pattern] = {"anyOf": [reference, {"type": "array", "items": reference}]}
    root["properties"]["preflight"]["anyOf"].append({"$ref": "#/$defs/PolicyConfig"})
    root["properties"]["routes"] = {
        "description": root["properties"]["routes"]["description"],
        "anyOf": [
            {
                "type": "object",
                "patternProperties": patterns,
                "additionalProperties": False,
                "minProperties": 1,
            },
            {"type": "array", "items": {"$ref": "#/$defs/ListedRoute"}, "minItems": 1},
        ],
    }


def _limited(definitions: dict[str, Schema]) -> Schema:
    """Return what everything with limits has in common: the fields of a policy, and rules."""
    policy = definitions["PolicyConfig"]["properties"]
    has_limit = {"anyOf": [{"required": [name]} for name in LIMIT_FIELDS]}
    others = [name for name in POLICY_FIELDS if name not in LIMIT_FIELDS]
    return {
        "properties": {name: policy[name] for name in POLICY_FIELDS},
        "dependentSchemas": dict.fromkeys(others, has_limit),
        "not": {"anyOf": [{"required": list(two)} for two in combinations(LIMIT_FIELDS, 2)]},
        "allOf": _limits_and_fields(),
    }


def _add_short_forms(definitions: dict[str, Schema]) -> None:
    upstream = definitions["UpstreamConfig"]["properties"]["targets"]
    limits = definitions["PolicyConfig"]["properties"]["limits"]
    short = {
        "AdminConfig": definitions["AdminConfig"]["properties"]["listen"],
        "ListenerConfig": definitions["ListenerConfig"]["properties"]["address"],
        "CandidateConfig": limits,
        "BreakerConfig": definitions["BreakerConfig"]["properties"]["failures"],
        "CostConfig": definitions["CostConfig"]["properties"]["reserve"],
        "CorsConfig": definitions["CorsConfig"]["properties"]["origins"],
        "HealthConfig": {"type": "string", "pattern": r"^(tcp|/[\x21\x22\x24-\x7e]*)$"},
        "TierConfig": {"type": "string", "minLength": 1},
        "ConditionConfig": {"type": "string", "minLength": 1},
        "ListConfig": definitions["ListConfig"]["properties"]["values"],
        "PolicyConfig": limits,
        "ErrorPage": {"type": "string"},
        "RedirectConfig": {"type": "string", "minLength": 1},
        "RespondConfig": {
            "anyOf": [{"type": "string"}, {"type": "integer", "minimum": 200, "maximum": 599}]
        },
        "RetryConfig": definitions["RetryConfig"]["properties"]["tries"],
        "StoreConfig": definitions["StoreConfig"]["properties"]["url"],
        "Target": _URL,
        "UpstreamConfig": {"anyOf": [_URL, upstream["anyOf"][1]]},
    }
    for name, schema in short.items():
        long = definitions[name]
        text = {key: value for key, value in schema.items() if key != "default"}
        definitions[name] = {"description": long["description"], "anyOf": [long, text]}


# Over the whole schema.


def _drop_titles(schema: Any) -> None:
    """Remove the titles that pydantic makes from field names."""
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for part in schema.values():
            _drop_titles(part)
    elif isinstance(schema, list):
        for part in schema:
            _drop_titles(part)


_SCALARS: Final = {"string", "integer", "number", "boolean"}
_RESTRICTIONS: Final = {"enum", "const", "pattern", "minLength"}


def _with_references(schema: Any) -> Any:
    """Return the schema with `${...}` allowed for every scalar."""
    if isinstance(schema, list):
        return [_with_references(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if _is_single_value(schema):
        about = {k: v for k, v in schema.items() if k in {"description", "default", "examples"}}
        value = {key: part for key, part in schema.items() if key not in about}
        return {**about, "anyOf": [value, _REFERENCE]}
    kept = {"not", "if", "patternProperties", "propertyNames"}
    result = {k: part if k in kept else _with_references(part) for k, part in schema.items()}
    if "patternProperties" in schema:
        inner = schema["patternProperties"].items()
        result["patternProperties"] = {name: _with_references(part) for name, part in inner}
    return result


def _is_single_value(schema: Schema) -> bool:
    kind = schema.get("type")
    # A property of a mapping may have this name.
    is_scalar = isinstance(kind, str) and kind in _SCALARS
    return (is_scalar and schema != {"type": "string"}) or bool(_RESTRICTIONS & schema.keys())
