"""What pydantic found, in our own words: what was there, and what would do.

`words_for` also says at which path to point, since a missing key, for one, has no place.
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
    called_here,
    called_there,
    habit,
    value_called_here,
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
"""Letters of a word that is not taken for another which begins otherwise."""

_QUOTED: Final = re.compile(r"'([^']*)'")
_INSTEAD_OF: Final = {"listeners": "routes", "redirect": "upstream", "respond": "upstream"}
"""By a key: the one that need not be there where it is."""
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
    """Turn one of pydantic's errors into findings; most are one."""
    context: dict[str, Any] = error.get("ctx", {})
    # What pydantic says of a key of a mapping has this at its end.
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
    """What is not missing but misspelt, if the error is an unknown key: that is said of it."""
    path: Path = error["loc"]
    model = _model_at(path[:-1]) if error["type"] == "extra_forbidden" else None
    if model is None:
        return
    word = str(path[-1])
    for name in _keys_of(model):
        if called_here(word, [name]) or did_you_mean(word, [name]):
            yield (*path[:-1], _INSTEAD_OF.get(name, name))


def _off_hint(path: Path, found: object) -> str:
    """For who wrote 0 where something can be switched off."""
    if found not in ("0", "0s", 0) or isinstance(found, float) or not path:
        return ""
    model, name = _model_at(path[:-1]), str(path[-1])
    info = model.model_fields.get(name) if model else None
    if info is None or Off not in info.metadata:
        return ""
    return f"to do without, write {name}: off"


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
        return Finding(path, f"found {describe(found)}", nearest(found, words))
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
    """A key and its value that YAML read as one text, for want of a space."""
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
    """`did you mean` the word that is near, or else all of them."""
    names = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
    same = value_called_here(found, words)
    if same:
        return same
    # Numbers are not alike for having digits in common.
    is_word = isinstance(found, str) and not all(word[:1].isdigit() for word in words)
    near = get_close_matches(str(found).lower(), words, 1, 0.6) if is_word else []
    return f"did you mean {near[0]}? Known: {', '.join(words)}" if near else names


def did_you_mean(found: str, words: Sequence[str], otherwise: str = "") -> str:
    """`did you mean` the word that is near; `otherwise` if none is."""
    lower = {word.lower(): word for word in words}
    near = get_close_matches(found.lower(), lower, 1, 0.6)
    # Of short words many look alike, such as auth and path.
    if not near or (len(found) <= SHORT and near[0][:1] != found[:1].lower()):
        return otherwise
    return f"did you mean {lower[near[0]]}?"


def _out_of_range(kind: str, path: Path, found: object, context: dict[str, Any]) -> Finding:
    if kind == "greater_than_equal":
        return Finding(path, f"{found} is too small", f"at least {context['ge']}")
    if kind == "less_than_equal":
        return Finding(path, f"{found} is too large", f"at most {context['le']}")
    if kind == "too_short":
        what = "there is nothing in it" if isinstance(found, Mapping) else "the list is empty"
        return Finding(path, what, "at least one")
    if kind == "too_long":
        hint = f"at most {context['max_length']}"
        return Finding(path, f"{context['actual_length']} are too many", hint)
    if kind == "string_too_short":
        return Finding(path, "the text is empty")
    return Finding(path, f"{describe(found)} will not do")


def _type_hint(kind: str, path: Path, found: object) -> str:
    if not path or path[0] == "routes":
        hint = _routes_hint(path, found)
        if hint:
            return hint
    if kind == "string_type" and isinstance(found, bool | int | float):
        shown = str(found).lower() if isinstance(found, bool) else found
        return f'quote it: "{shown}"'
    if found is None and kind != "string_type" and not _is_needed(path):
        return "leave the key out to take what is usual"
    name = "error_pages" if "error_pages" in path else str(path[-1])
    return _digits_hint(kind, found) or _listener_hint(path, found) or _section_hint(name, found)


def _routes_hint(path: Path, found: object) -> str:
    """How routes are written, or the whole file where it has none of our form."""
    if not path and isinstance(found, str):
        for name, form in _OTHER_FORMS.items():
            if form.search(found):
                return f"this looks like {name}; a configuration is YAML: listen: 127.0.0.1:8080"
    if len(path) < 2:
        return _EXAMPLES["routes"]
    if path[2:] == ("upstream",) and not isinstance(found, int | float):
        inside = "targets: [...]" if isinstance(found, list | tuple) else "..."
        return f"write it under upstreams: {{NAME: {{{inside}}}}}, and its NAME here"
    if len(path) > 2:
        return ""
    if isinstance(found, str) and found.endswith("}") and "{" not in found:
        return "there is a space before the brace: /**: {upstream: http://127.0.0.1:9000}"
    url = found if isinstance(found, str) and "://" in found else "http://127.0.0.1:9000"
    return f"such as {{upstream: {url}}}"


_OTHER_FORMS: Final = {
    "TOML or INI": re.compile(r"^\s*(?:[\w.\"-]+\s*=|\[[\w.\"/*]+\])"),
    "a configuration of nginx": re.compile(r"^\s*[a-z_]+(?:\s[^{};]*)?[{;]"),
}


def _is_needed(path: Path) -> bool:
    """Whether a key cannot be left out."""
    model = _model_at(path[:-1])
    info = model.model_fields.get(str(path[-1])) if model else None
    return info is not None and info.is_required()


def _digits_hint(kind: str, found: object) -> str:
    """For who wrote a unit, or a word, with a number."""
    digits = re.findall(r"[0-9]+", found) if isinstance(found, str) else []
    is_number = kind.startswith("int_") and len(digits) == 1
    return f"digits only, such as {digits[0]}" if is_number else ""


def _listener_hint(path: Path, found: object = None) -> str:
    """How a listener for clients of another system is written, where it cannot be read at all."""
    if path[:1] != ("listeners",) or path[3:] not in {(), ("domains",)}:
        return ""
    if len(path) > 2 and path[2] not in KINDS:
        return _TLS if path[2] == "tls" else ""
    said = path[2:3] or (tuple(found) if isinstance(found, Mapping | list) else (found,))
    shown = next((KINDS[word] for word in map(str, said) if word in KINDS), KINDS["ratio"]).example
    return f"such as {shown}" if len(path) > 1 else f"such as listeners: [{{{shown}}}]"


def _section_hint(name: str, found: object) -> str:
    """How a section is written, as near as can be to what was found in its place."""
    if found is False and name in _OFF_HINTS:
        return _OFF_HINTS[name]
    if name == "admin":
        port = found if isinstance(found, int) and not isinstance(found, bool) else 9901
        return f"such as admin: 127.0.0.1:{port}"
    if name == "queue":
        wait = found if isinstance(found, str) and DURATION.match(found) else "2s"
        most = found if isinstance(found, int) and not isinstance(found, bool) else 100
        return f"such as queue: {{max: {most}, max_wait: {wait}}}"
    if name == "on_limit":
        is_body = isinstance(found, str)
        said = f"body: {found}" if is_body else f"status: {503 if found == 503 else 429}"
        return f"such as on_limit: {{{said}}}"
    if name == "headers" and found in get_args(HeaderStyle):
        return f"here it is a condition on requests; a policy has headers: {found}"
    return _SECTION_HINTS.get(name, "")


_PARTS_OF_A_URL: Final = frozenset(
    ("address", "database", "db", "driver", "host", "kind", "password", "port", "type", "user")
)
_IN_THE_URL: Final = "it is a part of the URL: url: redis://host:6379/0"
_TLS: Final = "such as tls: {cert: cert.pem, key: key.pem}"
_OFF_HINTS: Final = {
    "admin": "to do without, write admin: off",
    "queue": "to do without, write queue: off",
    "log": "to log no requests, write log: {access: false}",
}
_SECTION_HINTS: Final = {
    "redirect": "such as redirect: https://{host}{path}",
    "respond": "such as respond: {status: 200, body: ok}",
    "error_pages": 'such as error_pages: {404: "${file:404.html}", 5xx: {text: Sorry}}',
    "log": "such as log: {format: text, output: stderr}",
    "health": "such as health: /healthz, or health: {path: /healthz, every: 5s}",
    "eject": "such as eject: {failures: 5}, or eject: off",
    "breaker": "such as breaker: 50%, or breaker: {failures: 50%, open: 10s}",
    "throttlex": "such as throttlex: {type: TOKEN_BUCKET, capacity: 100, refillRate: 10}",
    "rules": "such as rules: [{owner: pay, limit: 10/s}]",
    "headers": 'such as headers: {X-Beta: "*"}',
    "set": "such as set: {X-Team: blue}",
    "add": "such as add: {X-Team: blue}",
}
_EXAMPLES: Final = {
    "routes": "such as routes: {/**: {upstream: http://127.0.0.1:9000}}",
    "upstream": "such as upstream: http://127.0.0.1:9000",
    "targets": "such as targets: [http://127.0.0.1:9000]",
    "limits": "such as limits: [10/s burst 20]",
    "max_wait": "such as max_wait: 2s",
    "policies": "such as policies: {pay: 10/s burst 20}",
    "path": "such as path: /v1/**",
    "match": 'such as match: {remote_address: "*"}',
}


def _missing_hint(path: Path) -> str:
    return _listener_hint(path) or _EXAMPLES.get(str(path[-1]), "")


def _key_hint(path: Path) -> str:
    word = str(path[-1])
    model = _model_at(path[:-1])
    if model is None:
        return ""
    names = list(_keys_of(model))
    # At the top of the file stands what is about the gateway and its listeners.
    homes = _PLACES if model is not GatewayConfig else {**_SECTIONS, **_LISTENERS, **_PLACES}
    is_section = model in _PLACES.values()
    places = {place: _keys_of(home) for place, home in homes.items()} if is_section else {}
    return (
        _level_hint(path)
        or called_here(word, names)
        or _throttlex_hint(word, model)
        or (_IN_THE_URL if model is StoreConfig and word in _PARTS_OF_A_URL else "")
        or belongs(word, places)
        or _frontend_hint(word, model)
        or habit(word)
        or did_you_mean(word, names)
        or called_there(word, places)
        or (f"write set: {{{word}: ...}}, or add" if model is FieldEdits else "")
        or f"known here: {', '.join(names)}"
    )


def _level_hint(path: Path) -> str:
    """For who writes what is about a listener among what is about its system."""
    if path[:1] != ("listeners",) or len(path[2:]) != len(("kind", "word")):
        return ""
    kind, word = map(str, path[2:])
    inside = _model_at(path[:-1])
    outside = [name for name in FrontendConfig.model_fields if name not in KINDS]
    if word in outside:
        return f"it belongs beside {kind}, not under it"
    renamed = called_here(word, outside)
    is_known = inside is not None and called_here(word, _keys_of(inside))
    return f"{renamed}, and belongs beside {kind}" if renamed and not is_known else ""


def _frontend_hint(word: str, model: type[BaseModel]) -> str:
    """For who writes what is about another system too far out, or in that system's words."""
    if word == "descriptors" and model in {GatewayConfig, EnvoyRlsConfig}:
        return (
            "sluice import envoy-ratelimit FILE writes what Envoy's own service reads in our words"
        )
    if word in KINDS and model in {GatewayConfig, ListenerConfig}:
        return f"it belongs under listeners: [{{{KINDS[word].example}}}]"
    models = {kind: _model_at(("listeners", 0, kind)) for kind in KINDS}
    homes = " or ".join(kind for kind, one in models.items() if one and word in one.model_fields)
    if not homes or model not in {GatewayConfig, FrontendConfig}:
        return ""
    is_near = model is FrontendConfig
    return f"it belongs {'' if is_near else 'in listeners, '}under {homes}, indented further"


def _throttlex_hint(word: str, model: type[BaseModel]) -> str:
    """For who writes ThrottleX's words where a policy has its own."""
    # Others have a type of something, too.
    is_its = word in ThrottlexConfig.model_fields and (word != "type" or model is PolicyConfig)
    takes = "throttlex" in _keys_of(model) and word not in _keys_of(model)
    return f"it belongs under throttlex: {{{word}: ...}}" if is_its and takes else ""


def _keys_of(model: type[BaseModel]) -> Sequence[str]:
    """The keys that may be written for a model, short forms included."""
    if model in {RouteConfig, EnvoyRule, RatioConfig, RatioRule, SmockronDomain}:
        return (*model.model_fields, *POLICY_FIELDS)
    if model is PolicyConfig:
        return (*model.model_fields, "limit")
    if model is Target:
        return ("url", "weight")
    return tuple(model.model_fields)


def _model_at(path: Path) -> type[BaseModel] | None:
    """The model that describes a path of the configuration."""
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
    """An annotation without metadata and without None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _bare(get_args(annotation)[0])
    if origin in {Union, UnionType}:
        inner = [one for one in get_args(annotation) if one is not type(None)]
        return _bare(inner[0])
    return annotation


_SECTIONS: Final[dict[str, type[BaseModel]]] = {
    f"under {name}": section
    for name in ("store", "server", "log", "admin")
    if (section := _model_at((name,))) is not None
}
_LISTENERS: Final[dict[str, type[BaseModel]]] = {
    "under listen: {address: ..., KEY: ...}": ListenerConfig,
    "under listen: {address: ..., tls: {KEY: ...}}": ListenerTls,
}
_PLACES: Final[dict[str, type[BaseModel]]] = {
    "under upstreams: {NAME: {KEY: ...}}": UpstreamConfig,
    "to a route": RouteConfig,
    "to a policy": PolicyConfig,
    **_LISTENERS,
    "at the top of the file": GatewayConfig,
    **_SECTIONS,
    "under targets: [{url: ..., KEY: ...}]": Target,
}
"""Where keys may stand, as a hint says it."""
