"""Short forms of listeners for other systems, for the schema that editors read."""

from __future__ import annotations

from typing import Any, Final

from gateway.config.models.shorthand_listeners import BESIDE

Schema = dict[str, Any]

LIMITED: Final = ("EnvoyRule", "RatioConfig", "RatioRule", "SmockronDomain")
"""Models of which a limit and what goes with it may be said, as of a route."""


def complete_listeners(root: Schema, definitions: dict[str, Schema], limited: Schema) -> None:
    """Add what `gateway.config.models.shorthand_listeners` writes out.

    Args:
        root: the whole file; changed.
        definitions: those of the schema; changed.
        limited: what a mapping that may say limits has in common with a route.
    """
    root["required"].remove("routes")
    root["anyOf"] = [{"required": ["routes"]}, {"required": ["listeners"]}]
    for name in LIMITED:
        definition = definitions[name]
        for word, part in limited.items():
            held = definition.get(word)
            definition[word] = {**held, **part} if isinstance(held, dict) else part
    listener = definitions["FrontendConfig"]
    for kind, words in BESIDE.items():
        under = definitions[f"{kind.capitalize()}Config"]["properties"]
        listener["properties"] |= {word: under[word] for word in words}
        listener["dependentRequired"] = {word: [kind] for word in words}
    limits = definitions["PolicyConfig"]["properties"]["limits"]
    short = {
        "RatioConfig": limits,
        "SmockronDomain": {"anyOf": [*limits["anyOf"], {"type": "null"}]},
        "ThrottrConfig": definitions["ThrottrConfig"]["properties"]["version"],
    }
    for name, schema in short.items():
        long = definitions[name]
        definitions[name] = {"description": long["description"], "anyOf": [long, schema]}
