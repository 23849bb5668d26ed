"""Everything that may be configured: names, types, units, defaults.

Durations are whole microseconds and sizes whole bytes, whatever unit they were written in.
`shorthand` has expanded short forms before: routes have the names of policies and upstreams, and
policies have the values of `defaults`. Editors show the descriptions
(`gateway.config.explaining.schema`).
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from gateway.config.models.answers import OnLimit
from gateway.config.models.balancing import BreakerConfig, EjectConfig, HealthConfig
from gateway.config.models.changes import (
    FieldEdits,
)
from gateway.config.models.conditions import ConditionConfig
from gateway.config.models.consistency import EventualConfig, LeasedConfig
from gateway.config.models.cors import CorsConfig
from gateway.config.models.defaults import Defaults, fill_policy, fill_route
from gateway.config.models.direct_responses import (
    ErrorPage,
    ErrorPages,
    RedirectConfig,
    RespondConfig,
)
from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.geoip import GeoipConfig
from gateway.config.models.listeners import (
    CertificateConfig,
    ClientHeaders,
    ListenerConfig,
    ListenerTls,
)
from gateway.config.models.lists import ListConfig, Members, check_list_names
from gateway.config.models.policies import (
    PolicyConfig,
    QueueConfig,
    candidate_name,
)
from gateway.config.models.retry import RetryConfig
from gateway.config.models.routes import RouteConfig
from gateway.config.models.service import (
    AdminConfig,
    LogConfig,
    MigrateConfig,
    ReadyConfig,
    ServerConfig,
    StoreConfig,
)
from gateway.config.models.shorthand import expand
from gateway.config.models.throttlex import ThrottlexConfig
from gateway.config.models.tiers import TierConfig
from gateway.config.models.tokens import JwtConfig
from gateway.config.models.upstreams import Target, Timeouts, UpstreamConfig, UpstreamTlsConfig
from gateway.config.values.address import Address
from gateway.config.values.base import NAME, NAME_HINT, Model, overlay, untouched
from gateway.config.values.findings import KEY
from gateway.config.values.places import KeySecret, Network
from gateway.config.values.store_url import capabilities_of
from gateway.config.values.types import (
    LimitLine,
    ListOf,
    Off,
    WholeNumber,
    describe,
    is_from_file,
    problem,
    whole_number_schema,
)
from gateway.systems.envoy.config import EnvoyHeaders, EnvoyRlsConfig, EnvoyRule
from gateway.systems.ratio.config import RatioConfig, RatioRule
from gateway.systems.smockron.config import SmockronConfig, SmockronDomain
from gateway.systems.throttr.config import ThrottrConfig

__all__ = [
    "Address",
    "AdminConfig",
    "BreakerConfig",
    "CertificateConfig",
    "ClientHeaders",
    "ConditionConfig",
    "CorsConfig",
    "Defaults",
    "EjectConfig",
    "EnvoyHeaders",
    "EnvoyRlsConfig",
    "EnvoyRule",
    "ErrorPage",
    "EventualConfig",
    "FieldEdits",
    "FrontendConfig",
    "GatewayConfig",
    "GeoipConfig",
    "HealthConfig",
    "JwtConfig",
    "LeasedConfig",
    "LimitLine",
    "ListConfig",
    "ListenerConfig",
    "ListenerTls",
    "LogConfig",
    "MigrateConfig",
    "OnLimit",
    "PolicyConfig",
    "QueueConfig",
    "RatioConfig",
    "RatioRule",
    "ReadyConfig",
    "RedirectConfig",
    "RespondConfig",
    "RetryConfig",
    "RouteConfig",
    "ServerConfig",
    "SmockronConfig",
    "SmockronDomain",
    "StoreConfig",
    "Target",
    "ThrottlexConfig",
    "ThrottrConfig",
    "TierConfig",
    "Timeouts",
    "UpstreamConfig",
    "UpstreamTlsConfig",
]

_DOMAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _read_domain(value: object) -> str:
    if isinstance(value, str) and _DOMAIN.fullmatch(value):
        return value
    hint = "use 1 to 64 letters, digits and _ . -, for example shop-eu"
    raise problem(f"{describe(value)} is not a valid domain", hint)


def _nothing() -> PydanticKnownError:
    return PydanticKnownError(
        "too_short", {"field_type": "Tuple", "min_length": 1, "actual_length": 0}
    )


class GatewayConfig(Model):
    """A whole gateway."""

    needs_work: ClassVar[bool] = True
    """Whether something must be limited."""

    listeners: tuple[FrontendConfig, ...] = Field(
        (), description="Listeners for clients of other systems, such as {throttr: v5}."
    )
    listen: Annotated[tuple[ListenerConfig, ...], ListOf] = Field(
        (ListenerConfig.model_construct(address=Address("127.0.0.1", 8080)),),
        description="host:port, :port for all interfaces, unix:/path, or a list of these; with "
        "options: {address: ..., tls: ...}.",
    )
    store: StoreConfig = Field(
        untouched(StoreConfig), description="The store of counts: a URL, or a mapping with options."
    )
    domain: Annotated[str, BeforeValidator(_read_domain)] = Field(
        "sluice",
        description="The namespace of counts; gateways that share a store and a domain share their "
        "limits.",
    )
    trusted_proxies: Annotated[tuple[Network, ...], ListOf] = Field(
        (), description="Networks of proxies whose X-Forwarded-For and Forwarded are trusted."
    )
    key_secret: KeySecret | None = Field(
        None,
        description="The secret that policies with secret: true hash their keys with; the same on "
        "all gateways that share a store.",
        repr=False,
    )
    jwt: JwtConfig | None = Field(
        None, description="How tokens are verified whose claims limits count by, as in jwt:sub."
    )
    geoip: GeoipConfig | None = Field(
        None, description="Databases of the countries and networks that addresses belong to."
    )
    ipv6_prefix: Annotated[WholeNumber, Field(ge=1, le=128), whole_number_schema(1, 128)] = Field(
        64, description="How many leading bits of IPv6 addresses are counted together."
    )
    defaults: Defaults = Field(
        untouched(Defaults), description="Defaults of policies, upstreams and routes."
    )
    upstreams: dict[str, UpstreamConfig] = Field({}, description="Upstreams by name.")
    policies: dict[str, PolicyConfig] = Field({}, description="Policies by name.")
    lists: Annotated[dict[str, ListConfig], AfterValidator(check_list_names)] = Field(
        {},
        description="Lists of networks, or of values of a key, by name, for allow, deny and "
        "except.",
    )
    deny: Members = Field(
        (), description="Clients that get 403 on all routes: networks and names of lists."
    )
    preflight: Annotated[str | None, Off] = Field(
        None,
        description="A limit, or the name of a policy, for preflight requests of browsers (CORS), "
        "in place of those of their routes.",
    )
    routes: tuple[RouteConfig, ...] = Field(
        description="Routes by pattern: [METHOD[,METHOD] ][host]/path. Optional if there are "
        "listeners for other systems."
    )
    error_pages: ErrorPages = Field(
        None,
        description="Error pages by status, 4xx or 5xx, in the form that clients accept; off for "
        "problem documents only.",
    )
    server: ServerConfig = Field(
        untouched(ServerConfig),
        description="Worker processes, and limits of client connections and requests.",
    )
    admin: Annotated[AdminConfig | None, Off] = Field(
        untouched(AdminConfig),
        description="The listener for health, readiness and metrics; off for none.",
    )
    ready: ReadyConfig = Field(
        untouched(ReadyConfig), description="When /readyz says that the gateway should get traffic."
    )
    log: LogConfig = Field(untouched(LogConfig), description="The log of requests and events.")

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: object, info: ValidationInfo) -> object:
        if is_from_file(info):
            return data  # `check` has done it, and keeps the positions.
        expanded = expand(data)
        for finding in expanded.findings:
            raise problem(finding.message, finding.hint, under=finding.path)
        return expanded.data

    @field_validator("routes")
    @classmethod
    def _check_work(
        cls, routes: tuple[RouteConfig, ...], info: ValidationInfo
    ) -> tuple[RouteConfig, ...]:
        """Refuse a gateway that has neither routes nor listeners."""
        if not routes and cls.needs_work and not info.data.get("listeners", True):
            raise _nothing()
        if routes and not info.data.get("listen", True):
            raise problem(
                "the routes cannot be reached: listen is empty", "for example listen: :8080"
            )
        defaults: Defaults | None = info.data.get("defaults")
        if defaults is None:
            return routes
        return tuple([fill_route(route, defaults) for route in routes])

    @field_validator("upstreams")
    @classmethod
    def _fill_upstreams(
        cls, upstreams: dict[str, UpstreamConfig], info: ValidationInfo
    ) -> dict[str, UpstreamConfig]:
        defaults: Defaults | None = info.data.get("defaults")
        if defaults is None:
            return upstreams
        return {
            name: upstream.model_copy(
                update={"timeouts": overlay(upstream.timeouts, defaults.timeouts)}
            )
            for name, upstream in upstreams.items()
        }

    @field_validator("policies")
    @classmethod
    def _fill_policies(
        cls, policies: dict[str, PolicyConfig], info: ValidationInfo
    ) -> dict[str, PolicyConfig]:
        for name, policy in policies.items():
            if not NAME.fullmatch(name):
                raise problem(f"{name!r} is not a valid name", NAME_HINT, under=(name, KEY))
            candidate = candidate_name(name)
            if policy.candidate is not None and candidate in policies:
                message = f"{candidate!r} is the name of the candidate of {name!r}"
                raise problem(message, "use another name", under=(candidate, KEY))
        defaults: Defaults | None = info.data.get("defaults")
        store: StoreConfig | None = info.data.get("store")
        if defaults is None or store is None:
            return policies
        is_gatekeeper = capabilities_of(store.url).is_gatekeeper
        listeners: tuple[FrontendConfig, ...] = info.data.get("listeners", ())
        debited = {name for listener in listeners for name in listener.debited}
        return {
            name: fill_policy(
                policy, defaults, is_gatekeeper=is_gatekeeper, is_debited=name in debited
            )
            for name, policy in policies.items()
        }


def policies_of_requests(config: GatewayConfig) -> list[str]:
    """Return the names of the policies that apply to HTTP requests, each once."""
    names = [name for route in config.routes for name in route.policies]
    return list(dict.fromkeys([*names, *([config.preflight] if config.preflight else [])]))


def used_policies(config: GatewayConfig) -> set[str]:
    """Return the names of the policies that apply to requests or clients of listeners."""
    of_listeners = (name for listener in config.listeners for name in listener.policies)
    return {*policies_of_requests(config), *of_listeners}
