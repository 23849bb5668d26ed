"""Short forms of listeners for other systems, in the JSON Schema."""

from __future__ import annotations

from typing import Any, Final

from gateway.config.models.shorthand_listeners import BESIDE

Schema = dict[str, Any]

LIMITED: Final = ("EnvoyRule", "RatioConfig", "RatioRule", "SmockronDomain")
"""Models in which a limit and its options may be written, as in a route."""


def complete_listeners(root: Schema, definitions: dict[str, Schema], limited: Schema) -> None:
    """Add the short forms that `gateway.config.models.shorthand_listeners` expands.

    Args:
        root: the schema of the whole file; changed.
        definitions: the definitions of the schema; changed.
        limited: the part that mappings with limits share with routes.
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
