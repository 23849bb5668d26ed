"""What options mean, to be compared: two spellings of one meaning are equal.

Only what a configuration says is compared here; what its routes take over from elsewhere is for
`differences`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gateway.base.errors import LimitSyntaxError
from gateway.config.explaining.notation import option
from gateway.config.models.balancing import HashBy, numbers
from gateway.config.models.consistency import parts
from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.listeners import ListenerTls
from gateway.config.values.address import is_target, same_target
from gateway.config.values.base import Model
from gateway.config.values.store_url import same_store_url
from gateway.config.values.types import LimitLine
from gateway.limits.notation import parse_limit
from gateway.systems.throttr.config import ThrottrConfig


def meant(value: object) -> object:
    """Return something that is equal for values with the same meaning."""
    if isinstance(value, Model):
        said = {name: meant_by(type(value), name, getattr(value, name)) for name in _fields(value)}
        return type(value), said, _FURTHER.get(type(value), _nothing)(value)
    if isinstance(value, Mapping):
        return {key: meant(one) for key, one in value.items()}
    if type(value) in (tuple, list):
        return [meant(one) for one in value]  # type: ignore[attr-defined]
    if isinstance(value, LimitLine):
        return _limit(value)
    return value.words if isinstance(value, HashBy) else value


def meant_by(model: type[Model], name: str, value: object) -> object:
    """Return the same for a value of an option."""
    means = _MEANT.get((model.__name__, name))
    if means is not None:
        return means(value)
    if isinstance(value, str) and value.endswith("%") and option(model, name).is_part:
        return parts(value)
    return meant(value)


def has_order(model: type[Model], name: str) -> bool:
    """Return whether the order of an option's values matters."""
    return (model.__name__, name) not in _MEANT


def _fields(value: Model) -> Iterable[str]:
    hidden = _SPELLINGS.get(type(value), frozenset())
    return (name for name in type(value).model_fields if name not in hidden)


def _limit(line: LimitLine) -> object:
    """Return what the text of a limit means; its policy's options are compared by themselves."""
    try:
        return parse_limit(line.text)
    except LimitSyntaxError:
        # The limit of a ThrottleX policy has another notation.
        return line.limit, line.per


def _unordered(value: Any) -> object:
    return frozenset(value) if isinstance(value, tuple) else value


def _upstream(value: Any) -> object:
    # A name is not a target, and its case matters.
    return same_target(value) if value is not None and is_target(value) else value


def _statuses(value: Any) -> object:
    return numbers(value)


def _expected(value: Any) -> object:
    return numbers(value or ("2xx", "3xx"))


_MEANT: Final[Mapping[tuple[str, str], Callable[[Any], object]]] = {
    ("BreakerConfig", "statuses"): _statuses,
    ("EjectConfig", "statuses"): _statuses,
    ("EnvoyRule", "replaces"): _unordered,
    ("EnvoyRule", "shared"): _unordered,
    ("FieldEdits", "remove"): lambda names: frozenset(name.lower() for name in names),
    ("GatewayConfig", "trusted_proxies"): _unordered,
    ("HealthConfig", "status"): _expected,
    ("ListenerConfig", "proxy_protocol"): _unordered,
    ("ListenerTls", "client_names"): _unordered,
    ("MigrateConfig", "policies"): _unordered,
    ("MigrateConfig", "to"): same_store_url,
    ("RetryConfig", "methods"): _unordered,
    ("RetryConfig", "when"): _unordered,
    ("RouteConfig", "client"): _unordered,
    ("RouteConfig", "methods"): _unordered,
    ("RouteConfig", "upstream"): _upstream,
    ("ServerConfig", "methods"): _unordered,
    ("StoreConfig", "url"): same_store_url,
    ("Target", "host"): str.lower,
    ("Target", "url"): same_target,
}
"""Options whose values may be written in several ways, such as in any order."""

_SPELLINGS: Final[Mapping[type[Model], frozenset[str]]] = {
    FrontendConfig: frozenset({"bind"}),
    ListenerTls: frozenset({"cert", "certificates", "key", "key_password"}),
    ThrottrConfig: frozenset({"size"}),
}
"""Options that say together with others, or with a default, what `_FURTHER` returns."""

_FURTHER: Final[Mapping[type[Model], Callable[[Any], object]]] = {
    FrontendConfig: lambda listener: listener.address,
    ListenerTls: lambda tls: tls.pairs,
    ThrottrConfig: lambda throttr: throttr.bits,
}


def _nothing(_value: Model) -> None:
    return None


def spellings(old: Model, new: Model) -> frozenset[str]:
    """Return the options that differ in their spelling only, given two of the same model."""
    further = _FURTHER.get(type(old), _nothing)
    return _SPELLINGS.get(type(old), frozenset()) if further(old) == further(new) else frozenset()
