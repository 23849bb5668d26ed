"""Turns pydantic's errors into messages and hints of our own.

`words_for` also returns the path to point at, because a missing key, for example, has no position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from gateway.config.checking.foreign_names import (
    belongs,
    common_mistake,
    local_name,
    local_place,
    local_value,
)
from gateway.config.models.frontends import KINDS
from gateway.config.models.gateway import (
    EnvoyRlsConfig,
    EnvoyRule,
    FieldEdits,
    FrontendConfig,
    GatewayConfig,
    ListenerConfig,
    ListenerTls,
    PolicyConfig,
    RatioConfig,
    RatioRule,
    RouteConfig,
    SmockronDomain,
    StoreConfig,
    Target,
    ThrottlexConfig,
    UpstreamConfig,
)
from gateway.config.models.policies import HeaderStyle
from gateway.config.models.shorthand import POLICY_FIELDS
from gateway.config.reading.syntax import glued_key, split_glued
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.types import Off, describe
from gateway.config.values.units import DURATION

SHORT: Final = 4
"""How many first letters a word must share with another to be taken for it."""

_QUOTED: Final = re.compile(r"'([^']*)'")
_INSTEAD_OF: Final = {"listeners": "routes", "redirect": "upstream", "respond": "upstream"}
"""By a key: the other key that makes it superfluous."""
_WRONG_TYPE: Final = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
}


def words_for(error: ErrorDetails) -> Iterator[Finding]:
    """Turn one of pydantic's errors into findings; usually one."""
    context: dict[str, Any] = error.get("ctx", {})
    # pydantic marks errors about a key of a mapping like this.
    path: Path = error["loc"]
    if path[-1:] == ("[key]",):
        path = (*path[:-1], KEY)
    if error["type"] == "sluice":
        for one in (context, *context.get("also", ())):
            under: Path = tuple(one["under"])
            hint = _off_hint(path, error["input"]) or one["hint"]
            yield Finding((*path, *under), one["message"], hint, one["column"])
    else:
        yield _words_for(error, path, context)


def spared_by(error: ErrorDetails) -> Iterator[Path]:
    """Return whether the missing key is only misspelt: the unknown key is reported instead."""
    path: Path = error["loc"]
    model = _model_at(path[:-1]) if error["type"] == "extra_forbidden" else None
    if model is None:
        return
    word = str(path[-1])
    for name in _keys_of(model):
        if local_name(word, [name]) or did_you_mean(word, [name]):
            yield (*path[:-1], _INSTEAD_OF.get(name, name))


def _off_hint(path: Path, found: object) -> str:
    """Return the hint for 0 where something can be switched off."""
    if found not in ("0", "0s", 0) or isinstance(found, float) or not path:
        return ""
    model, name = _model_at(path[:-1]), str(path[-1])
    info = model.model_fields.get(name) if model else None
    if info is None or Off not in info.metadata:
        return ""
    return f"to disable it, write {name}: off"


def _words_for(error: ErrorDetails, path: Path, context: dict[str, Any]) -> Finding:
    kind = error["type"]
    found = error["input"]
    if kind == "missing":
        return Finding((*path[:-1], KEY), f"{path[-1]} is missing", _missing_hint(path))
    glued = _glued(kind, path, found)
    if glued is not None:
        return glued
    if kind == "extra_forbidden":
        return Finding((*path, KEY), f"unknown key {str(path[-1])!r}", _key_hint(path))
    if kind == "literal_error":
        words = _QUOTED.findall(context["expected"]) or re.findall(r"\d+", context["expected"])
        return Finding(path, f"{describe(found)} is not valid here", nearest(found, words))
    if kind in _WRONG_TYPE:
        if path == ("routes",):
            kind = "dict_type"
        return Finding(
            path,
            f"found {describe(found)}, {_WRONG_TYPE[kind]} was expected",
            _type_hint(kind, path, found),
        )
    return _out_of_range(kind, path, found, context)


def _glued(kind: str, path: Path, found: object) -> Finding | None:
    """Return a key and its value that YAML read as one text because a space is missing."""
    is_key = kind == "extra_forbidden"
    text = path[-1] if is_key else found
    model = _model_at(path[:-1] if is_key else path)
    if not isinstance(text, str) or model is None or not (is_key or kind in _WRONG_TYPE):
        return None
    parts = split_glued(text)
    if parts is None or parts[0] not in _keys_of(model):
        return None
    return Finding((*path, KEY) if is_key else path, *glued_key(*parts))


def nearest(found: object, words: Sequence[str]) -> str:
    """Return `did you mean` with a similar word, or a list of all words."""
    names = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    same = local_value(found, words)
    if same:
        return same
    # Numbers with common digits are not similar.
    is_word = isinstance(found, str) and not all(word[:1].isdigit() for word in words)
    near = get_close_matches(str(found).lower(), words, 1, 0.6) if is_word else []
    return f"did you mean {near[0]}? Known: {', '.join(words)}" if near else f"use {names}"


def did_you_mean(found: str, words: Sequence[str], otherwise: str = "") -> str:
    """Return `did you mean` with a similar word; `otherwise` if there is none."""
    lower = {word.lower(): word for word in words}
    near = get_close_matches(found.lower(), lower, 1, 0.6)
    # Many short words look alike, such as auth and path.
    if not near or (len(found) <= SHORT and near[0][:1] != found[:1].lower()):
        return otherwise
    return f"did you mean {lower[near[0]]}?"


def _out_of_range(kind: str, path: Path, found: object, context: dict[str, Any]) -> Finding:
    if kind == "greater_than_equal":
        return Finding(path, f"{found} is too small", f"use {context['ge']} or more")
    if kind == "less_than_equal":
        return Finding(path, f"{found} is too large", f"use {context['le']} or less")
    if kind == "too_short":
        what = "it is empty" if isinstance(found, Mapping) else "the list is empty"
        return Finding(path, what, "add at least one")
    if kind == "too_long":
        hint = f"use at most {context['max_length']}"
        return Finding(path, f"{context['actual_length']} are too many", hint)
    if kind == "string_too_short":
        return Finding(path, "the text is empty")
    return Finding(path, f"{describe(found)} is not valid here")


def _type_hint(kind: str, path: Path, found: object) -> str:
    if not path or path[0] == "routes":
        hint = _routes_hint(path, found)
        if hint:
            return hint
    if kind == "string_type" and isinstance(found, bool | int | float):
        shown = str(found).lower() if isinstance(found, bool) else found
        return f'quote it: "{shown}"'
    if found is None and kind != "string_type" and not _is_needed(path):
        return "remove the key to use the default"
    name = "error_pages" if "error_pages" in path else str(path[-1])
    return _digits_hint(kind, found) or _listener_hint(path, found) or _section_hint(name, found)


def _routes_hint(path: Path, found: object) -> str:
    """Return how routes are written, or the whole file if it is in another format."""
    if not path and isinstance(found, str):
        for name, form in _OTHER_FORMS.items():
            if form.search(found):
                return (
                    f"this looks like {name}; a configuration is YAML, for example listen: "
                    "127.0.0.1:8080"
                )
    if len(path) < 2:
        return _EXAMPLES["routes"]
    if path[2:] == ("upstream",) and not isinstance(found, int | float):
        inside = "targets: [...]" if isinstance(found, list | tuple) else "..."
        return f"define it under upstreams: {{NAME: {{{inside}}}}}, and write its NAME here"
    if len(path) > 2:
        return ""
    if isinstance(found, str) and found.endswith("}") and "{" not in found:
        return "write a space before the brace: /**: {upstream: http://127.0.0.1:9000}"
    url = found if isinstance(found, str) and "://" in found else "http://127.0.0.1:9000"
    return f"for example {{upstream: {url}}}"


_OTHER_FORMS: Final = {
    "TOML or INI": re.compile(r"^\s*(?:[\w.\"-]+\s*=|\[[\w.\"/*]+\])"),
    "a configuration of nginx": re.compile(r"^\s*[a-z_]+(?:\s[^{};]*)?[{;]"),
}


def _is_needed(path: Path) -> bool:
    """Return whether a key is required."""
    model = _model_at(path[:-1])
    info = model.model_fields.get(str(path[-1])) if model else None
    return info is not None and info.is_required()


def _digits_hint(kind: str, found: object) -> str:
    """Return the hint for a number with a unit or a word."""
    digits = re.findall(r"[0-9]+", found) if isinstance(found, str) else []
    is_number = kind.startswith("int_") and len(digits) == 1
    return f"use digits only, for example {digits[0]}" if is_number else ""


def _listener_hint(path: Path, found: object = None) -> str:
    """Return how a listener for another system is written, if it could not be read at all."""
    if path[:1] != ("listeners",) or path[3:] not in {(), ("domains",)}:
        return ""
    if len(path) > 2 and path[2] not in KINDS:
        return _TLS if path[2] == "tls" else ""
    said = path[2:3] or (tuple(found) if isinstance(found, Mapping | list) else (found,))
    shown = next((KINDS[word] for word in map(str, said) if word in KINDS), KINDS["ratio"]).example
    return f"for example {shown}" if len(path) > 1 else f"for example listeners: [{{{shown}}}]"


def _section_hint(name: str, found: object) -> str:
    """Return how a section is written, with the values found if possible."""
    if found is False and name in _OFF_HINTS:
        return _OFF_HINTS[name]
    if name == "admin":
        port = found if isinstance(found, int) and not isinstance(found, bool) else 9901
        return f"for example admin: 127.0.0.1:{port}"
    if name == "queue":
        wait = found if isinstance(found, str) and DURATION.match(found) else "2s"
        most = found if isinstance(found, int) and not isinstance(found, bool) else 100
        return f"for example queue: {{max: {most}, max_wait: {wait}}}"
    if name == "on_limit":
        is_body = isinstance(found, str)
        said = f"body: {found}" if is_body else f"status: {503 if found == 503 else 429}"
        return f"for example on_limit: {{{said}}}"
    if name == "headers" and found in get_args(HeaderStyle):
        return f"this key is a condition on requests; in a policy, write headers: {found}"
    return _SECTION_HINTS.get(name, "")


_PARTS_OF_A_URL: Final = frozenset(
    ("address", "database", "db", "driver", "host", "kind", "password", "port", "type", "user")
)
_IN_THE_URL: Final = "it is part of the URL: url: redis://host:6379/0"
_TLS: Final = "for example tls: {cert: cert.pem, key: key.pem}"
_OFF_HINTS: Final = {
    "admin": "to disable it, write admin: off",
    "queue": "to disable it, write queue: off",
    "log": "to log no requests, write log: {access: false}",
}
_SECTION_HINTS: Final = {
    "redirect": "for example redirect: https://{host}{path}",
    "respond": "for example respond: {status: 200, body: ok}",
    "error_pages": 'for example error_pages: {404: "${file:404.html}", 5xx: {text: Sorry}}',
    "cors": "for example cors: https://app.example.com",
    "log": "for example log: {format: text, output: stderr}",
    "ready": "for example ready: {needs_store: true}",
    "health": "for example health: /healthz, or health: {path: /healthz, every: 5s}",
    "eject": "for example eject: {failures: 5}, or eject: off",
    "breaker": "for example breaker: 50%, or breaker: {failures: 50%, open: 10s}",
    "throttlex": "for example throttlex: {type: TOKEN_BUCKET, capacity: 100, refillRate: 10}",
    "rules": "for example rules: [{owner: pay, limit: 10/s}]",
    "headers": 'for example headers: {X-Beta: "*"}',
    "set": "for example set: {X-Team: blue}",
    "add": "for example add: {X-Team: blue}",
}
_EXAMPLES: Final = {
    "routes": "for example routes: {/**: {upstream: http://127.0.0.1:9000}}",
    "upstream": "for example upstream: http://127.0.0.1:9000",
    "targets": "for example targets: [http://127.0.0.1:9000]",
    "limits": "for example limits: [10/s burst 20]",
    "max_wait": "for example max_wait: 2s",
    "policies": "for example policies: {pay: 10/s burst 20}",
    "path": "for example path: /v1/**",
    "match": 'for example match: {remote_address: "*"}',
}


def _missing_hint(path: Path) -> str:
    return _listener_hint(path) or _EXAMPLES.get(str(path[-1]), "")


def _key_hint(path: Path) -> str:
    word = str(path[-1])
    model = _model_at(path[:-1])
    if model is None:
        return ""
    names = list(_keys_of(model))
    # Keys about the gateway and its listeners are at the top of the file.
    homes = _PLACES if model is not GatewayConfig else {**_SECTIONS, **_LISTENERS, **_PLACES}
    is_section = model in _PLACES.values()
    places = {place: _keys_of(home) for place, home in homes.items()} if is_section else {}
    return (
        _level_hint(path)
        or local_name(word, names)
        or _throttlex_hint(word, model)
        or (_IN_THE_URL if model is StoreConfig and word in _PARTS_OF_A_URL else "")
        or belongs(word, places)
        or _frontend_hint(word, model)
        or common_mistake(word)
        or did_you_mean(word, names)
        or local_place(word, places)
        or (f"write set: {{{word}: ...}}, or add" if model is FieldEdits else "")
        or f"known keys: {', '.join(names)}"
    )


def _level_hint(path: Path) -> str:
    """Return the hint for a key of the listener among those of its system."""
    if path[:1] != ("listeners",) or len(path[2:]) != len(("kind", "word")):
        return ""
    kind, word = map(str, path[2:])
    inside = _model_at(path[:-1])
    outside = [name for name in FrontendConfig.model_fields if name not in KINDS]
    if word in outside:
        return f"it belongs beside {kind}, not under it"
    renamed = local_name(word, outside)
    is_known = inside is not None and local_name(word, _keys_of(inside))
    return f"{renamed}, and belongs beside {kind}" if renamed and not is_known else ""


def _frontend_hint(word: str, model: type[BaseModel]) -> str:
    """Return the hint for another system's key in the wrong place, or in that system's words."""
    if word == "descriptors" and model in {GatewayConfig, EnvoyRlsConfig}:
        return "convert the service's own files with sluice import envoy-ratelimit FILE"
    if word in KINDS and model in {GatewayConfig, ListenerConfig}:
        return f"it belongs under listeners: [{{{KINDS[word].example}}}]"
    models = {kind: _model_at(("listeners", 0, kind)) for kind in KINDS}
    homes = " or ".join(kind for kind, one in models.items() if one and word in one.model_fields)
    if not homes or model not in {GatewayConfig, FrontendConfig}:
        return ""
    is_near = model is FrontendConfig
    return f"it belongs {'' if is_near else 'in listeners, '}under {homes}, indented further"


def _throttlex_hint(word: str, model: type[BaseModel]) -> str:
    """Return the hint for ThrottleX's keys directly in a policy."""
    # Other programs have a type of something, too.
    is_its = word in ThrottlexConfig.model_fields and (word != "type" or model is PolicyConfig)
    takes = "throttlex" in _keys_of(model) and word not in _keys_of(model)
    return f"it belongs under throttlex: {{{word}: ...}}" if is_its and takes else ""


def _keys_of(model: type[BaseModel]) -> Sequence[str]:
    """Return the keys that may be written for a model, including short forms."""
    if model in {RouteConfig, EnvoyRule, RatioConfig, RatioRule, SmockronDomain}:
        return (*model.model_fields, *POLICY_FIELDS)
    if model is PolicyConfig:
        return (*model.model_fields, "limit")
    if model is Target:
        return ("url", "weight")
    return tuple(model.model_fields)


def _model_at(path: Path) -> type[BaseModel] | None:
    """Return the model that describes a path of the configuration."""
    here: Any = GatewayConfig
    for part in path:
        if isinstance(here, type) and issubclass(here, BaseModel):
            info = here.model_fields.get(str(part))
            here = _bare(info.annotation) if info else None
        elif get_origin(here) in {dict, tuple}:
            arguments = get_args(here)
            here = _bare(arguments[1] if get_origin(here) is dict else arguments[0])
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _bare(annotation: Any) -> Any:
    """Return an annotation without metadata and without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _bare(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        inner = [one for one in get_args(annotation) if one is not type(None)]
        return _bare(inner[0])
    return annotation


_SECTIONS: Final[dict[str, type[BaseModel]]] = {
    f"under {name}": section
    for name in ("store", "server", "log", "admin", "ready")
    if (section := _model_at((name,))) is not None
}
_LISTENERS: Final[dict[str, type[BaseModel]]] = {
    "under listen: {address: ..., KEY: ...}": ListenerConfig,
    "under listen: {address: ..., tls: {KEY: ...}}": ListenerTls,
}
_PLACES: Final[dict[str, type[BaseModel]]] = {
    "under upstreams: {NAME: {KEY: ...}}": UpstreamConfig,
    "in a route": RouteConfig,
    "in a policy": PolicyConfig,
    **_LISTENERS,
    "at the top of the file": GatewayConfig,
    **_SECTIONS,
    "under targets: [{url: ..., KEY: ...}]": Target,
}
"""Places where keys are allowed, as hints name them."""
