"""Everything that may be configured: names, types, units, defaults.

Durations are whole microseconds and sizes whole bytes, whatever unit they were written in.
Short forms become long ones in `shorthand`; what is read here is complete: routes carry the
names of policies and upstreams, policies carry what `defaults` says where they leave it out.
The descriptions are shown by editors (`gateway.config.schema`).
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from gateway.config.address import Address
from gateway.config.balancing import BreakerConfig, EjectConfig, HealthConfig
from gateway.config.base import NAME, NAME_HINT, Model, overlay, untouched
from gateway.config.changes import (
    FieldEdits,
    OwnMaxBody,
    PathChange,
    PathText,
    UpstreamHost,
    compile_rewrite,
)
from gateway.config.consistency import EventualConfig, LeasedConfig
from gateway.config.defaults import Defaults, fill_policy
from gateway.config.frontend_envoy_rls import EnvoyRlsConfig, EnvoyRule
from gateway.config.frontend_ratio import RatioConfig, RatioRule
from gateway.config.frontend_smockron import SmockronConfig, SmockronDomain
from gateway.config.frontends import FrontendConfig
from gateway.config.listeners import (
    CertificateConfig,
    ClientHeaders,
    ListenerConfig,
    ListenerTls,
)
from gateway.config.own_answers import (
    ErrorPage,
    ErrorPages,
    Location,
    RedirectConfig,
    RespondConfig,
    parse_location,
)
from gateway.config.places import Network
from gateway.config.policies import (
    OnLimit,
    PolicyConfig,
    QueueConfig,
)
from gateway.config.retry import RetryConfig
from gateway.config.service import AdminConfig, LogConfig, MigrateConfig, ServerConfig, StoreConfig
from gateway.config.shorthand import KEY, expand
from gateway.config.store_url import parse_store_url
from gateway.config.throttlex import ThrottlexConfig
from gateway.config.upstreams import Target, Timeouts, UpstreamConfig, UpstreamTlsConfig
from gateway.config.values import (
    HostPattern,
    LimitLine,
    ListOf,
    Method,
    Off,
    PathPattern,
    Switch,
    WholeNumber,
    describe,
    is_from_file,
    problem,
    problems,
    whole_number_schema,
)
from gateway.editing.template import TemplateError

__all__ = [
    "Address",
    "AdminConfig",
    "BreakerConfig",
    "CertificateConfig",
    "ClientHeaders",
    "Defaults",
    "EjectConfig",
    "EnvoyRlsConfig",
    "EnvoyRule",
    "ErrorPage",
    "EventualConfig",
    "FieldEdits",
    "FrontendConfig",
    "GatewayConfig",
    "HealthConfig",
    "LeasedConfig",
    "LimitLine",
    "ListenerConfig",
    "ListenerTls",
    "LogConfig",
    "MigrateConfig",
    "OnLimit",
    "PolicyConfig",
    "QueueConfig",
    "RatioConfig",
    "RatioRule",
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
    "Timeouts",
    "UpstreamConfig",
    "UpstreamTlsConfig",
]

_FOR_UPSTREAMS: Final = (
    *("strip_prefix", "add_prefix", "rewrite", "request_headers", "upstream_host"),
    *("max_body", "retry", "websocket"),
)
"""What a route may say only if its requests go to an upstream."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def _read_condition_name(name: object) -> str:
    if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
        raise problem(f"{describe(name)} is not the name of a header")
    if name.lower() == "host":
        raise problem("the host has a key of its own", "write host: ...")
    return name


ConditionName = Annotated[
    str, PlainValidator(_read_condition_name), WithJsonSchema({"type": "string"})
]


class RouteConfig(Model):
    """Which requests go to which upstream, under which policies."""

    name: Annotated[str, Field(description="In metrics, logs and keys; its pattern if left out.")]
    path: PathPattern = Field(
        description="/v1/pay exactly, /v1/** and everything below, {name} for any one segment."
    )
    host: HostPattern | None = Field(
        None, description="A host, *.example.com for all below it; any host if left out."
    )
    methods: Annotated[tuple[Method, ...], ListOf] = Field((), description="Any if left out.")
    headers: dict[ConditionName, str] = Field(
        {}, description="Fields that a request must have, with this value; '*' for any value."
    )
    redirect: RedirectConfig | None = Field(
        None, description="Where clients are sent instead: a URL, or more."
    )
    respond: RespondConfig | None = Field(
        None, description="An answer that is always the same: a text, a status, or more."
    )
    upstream: str | None = Field(
        None,
        validate_default=True,
        description="The name of an upstream, or the URL of one; a redirect or a fixed answer has "
        "none.",
    )
    policies: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Names of policies; all must let a request through."
    )
    websocket: Switch = Field(True, description="Whether WebSockets may be opened.")
    retry: Annotated[RetryConfig | None, Off] = Field(
        None, description="As in its upstream, field by field; off for never."
    )
    max_body: OwnMaxBody | None = Field(
        None, description="Of a request; as under server if left out, off for any."
    )
    strip_prefix: PathText | None = Field(
        None, description="What the upstream's path lacks of what the route's begins with."
    )
    add_prefix: PathText | None = Field(
        None, description="What the upstream's path begins with, before what is left."
    )
    rewrite: PathText | None = Field(
        None,
        description="The upstream's path: /v2/{id}/** with the route's own names, and ** for what "
        "its ** stands for.",
    )
    upstream_host: UpstreamHost = Field(
        "client",
        description="The Host that the upstream is told: client for what the client asked for, "
        "target for the target's own, or a host.",
    )
    request_headers: FieldEdits = Field(
        untouched(FieldEdits), description="Fields changed on the way to the upstream."
    )
    response_headers: FieldEdits = Field(
        untouched(FieldEdits), description="Fields changed on the way to the client."
    )
    error_pages: ErrorPages = Field(
        None, description="The forms of errors by status; those of the whole file if left out."
    )

    @field_validator("name")
    @classmethod
    def _check_route_name(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise problem(f"{name!r} cannot be a name", NAME_HINT)
        return name

    @field_validator("upstream")
    @classmethod
    def _check_upstream(cls, upstream: str | None, info: ValidationInfo) -> str | None:
        own = [name for name in ("redirect", "respond") if info.data.get(name) is not None]
        is_certain = "redirect" in info.data and "respond" in info.data
        if upstream is None and not own and is_certain:
            hint = "such as upstream: http://127.0.0.1:9000"
            raise problem("upstream is missing", hint, under=(KEY,))
        if upstream is not None and own:
            message = f"{own[0]} is the answer: no request gets to an upstream"
            raise problem(message, "one of the two", under=(KEY,))
        return upstream

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        lower: dict[str, str] = {}
        for name, value in headers.items():
            if name.lower() in lower:
                raise problem(f"{name!r} is named twice", "once, in any case", under=(name, KEY))
            lower[name.lower()] = value.strip()
        return lower

    @model_validator(mode="after")
    def _check_changes(self) -> RouteConfig:
        if self.upstream is not None:
            compile_rewrite(self.path, self.path_change)
            return self
        if self.redirect is not None and self.respond is not None:
            message = "a request is either redirected or answered"
            raise problem(message, "one of the two", under=("respond", KEY))
        wrong = [
            problem(
                f"{name} is for what goes to an upstream, and this route has none",
                "leave it out",
                under=(name, KEY),
            )
            for name in _FOR_UPSTREAMS
            if name in self.model_fields_set
        ]
        if self.redirect is not None:
            try:
                location = parse_location(self.path, self.redirect.to)
            except TemplateError as error:
                under = ("redirect", "to")
                wrong.append(problem(error.message, error.hint, under=under))
            else:
                if self._is_redirected_to_itself(self.redirect, location):
                    message = "this leads to the route itself: a client would go round in circles"
                    wrong.append(problem(message, "another path", under=("redirect", "to")))
        if wrong:
            raise problems(wrong)
        return self

    def _is_redirected_to_itself(self, redirect: RedirectConfig, location: Location) -> bool:
        """Whether every client that follows is certain to be back here."""
        path = location.template.text.partition("?")[0]
        # With these statuses what was no GET comes back as one (RFC 9110, section 15.4).
        is_get = redirect.status in (301, 302, 303) and "GET" not in self.methods
        return not (self.methods and is_get) and path in ("{path}", self.path)

    @property
    def path_change(self) -> PathChange:
        """What becomes of paths, for `compile_rewrite`."""
        return PathChange(self.strip_prefix, self.add_prefix, self.rewrite)


def retry_of(route: RouteConfig, upstream: UpstreamConfig) -> RetryConfig | None:
    """When requests of a route are sent again: as it says, and for the rest as its upstream."""
    if route.retry is None:
        return None if "retry" in route.model_fields_set else upstream.retry
    return overlay(route.retry, upstream.retry or untouched(RetryConfig))


def _read_domain(value: object) -> str:
    if isinstance(value, str) and _DOMAIN.fullmatch(value):
        return value
    hint = "1 to 64 letters, digits and _ . -, such as shop-eu"
    raise problem(f"{describe(value)} cannot be a domain", hint)


def _nothing() -> PydanticKnownError:
    return PydanticKnownError(
        "too_short", {"field_type": "Tuple", "min_length": 1, "actual_length": 0}
    )


class GatewayConfig(Model):
    """A whole gateway."""

    needs_work: ClassVar[bool] = True
    """Whether there have to be requests to limit."""

    listeners: tuple[FrontendConfig, ...] = Field(
        (), description="Listeners for clients of other systems, such as {throttr: v5}."
    )
    listen: Annotated[tuple[ListenerConfig, ...], ListOf] = Field(
        (ListenerConfig.model_construct(address=Address("127.0.0.1", 8080)),),
        description="host:port, :port for every interface, unix:/path, or a list of these; each "
        "of them may say more: {address: ..., tls: ...}.",
    )
    store: StoreConfig = Field(
        untouched(StoreConfig), description="Where counts are kept: a URL, or more."
    )
    domain: Annotated[str, BeforeValidator(_read_domain)] = Field(
        "sluice",
        description="The namespace of counts; gateways that share a store and a domain share "
        "their limits.",
    )
    trusted_proxies: Annotated[tuple[Network, ...], ListOf] = Field(
        (), description="Networks whose X-Forwarded-For and Forwarded are believed."
    )
    ipv6_prefix: Annotated[WholeNumber, Field(ge=1, le=128), whole_number_schema(1, 128)] = Field(
        64, description="IPv6 clients are counted together by this many leading bits."
    )
    defaults: Defaults = Field(
        untouched(Defaults), description="What policies and upstreams take where they leave it out."
    )
    upstreams: dict[str, UpstreamConfig] = Field({}, description="Upstreams by name.")
    policies: dict[str, PolicyConfig] = Field({}, description="Policies by name.")
    routes: tuple[RouteConfig, ...] = Field(
        description="Routes by pattern: [METHOD[,METHOD] ][host]/path. None are needed where "
        "there are listeners for other systems."
    )
    error_pages: ErrorPages = Field(
        None,
        description="The forms of errors by status, 4xx or 5xx, as clients would have them; off "
        "for problem documents only.",
    )
    server: ServerConfig = Field(
        untouched(ServerConfig), description="How many processes serve, and what clients may do."
    )
    admin: Annotated[AdminConfig | None, Off] = Field(
        untouched(AdminConfig),
        description="The listener for health, readiness and metrics; off for none.",
    )
    log: LogConfig = Field(untouched(LogConfig), description="The log of requests and events.")

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: object, info: ValidationInfo) -> object:
        if is_from_file(info):
            return data  # `check` has done it, and keeps the places.
        expanded = expand(data)
        for finding in expanded.findings:
            raise problem(finding.message, finding.hint, under=finding.path)
        return expanded.data

    @field_validator("routes")
    @classmethod
    def _check_work(
        cls, routes: tuple[RouteConfig, ...], info: ValidationInfo
    ) -> tuple[RouteConfig, ...]:
        """A gateway without routes has to be good for something else."""
        if not routes and cls.needs_work and not info.data.get("listeners", True):
            raise _nothing()
        if routes and not info.data.get("listen", True):
            raise problem("nobody can reach the routes: listen is empty", "such as listen: :8080")
        return routes

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
        for name in policies:
            if not NAME.fullmatch(name):
                raise problem(f"{name!r} cannot be a name", NAME_HINT, under=(name, KEY))
        defaults: Defaults | None = info.data.get("defaults")
        store: StoreConfig | None = info.data.get("store")
        if defaults is None or store is None:
            return policies
        kind = parse_store_url(store.url).kind
        return {name: fill_policy(policy, defaults, kind) for name, policy in policies.items()}


def used_policies(config: GatewayConfig) -> set[str]:
    """The names of those that requests or callers of listeners are held to."""
    of_routes = (name for route in config.routes for name in route.policies)
    of_listeners = (name for listener in config.listeners for name in listener.policies)
    return {*of_routes, *of_listeners}
