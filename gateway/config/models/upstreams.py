"""Upstreams: servers that requests are forwarded to, and how long they may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gateway.config.models.balancing import Balance, BreakerConfig, EjectConfig, HealthConfig
from gateway.config.models.retry import RetryConfig
from gateway.config.values.address import (
    DEFAULT_PORTS,
    Address,
    AddressError,
    UnixAddress,
    parse_host_pattern,
    parse_target,
)
from gateway.config.values.base import Model, untouched
from gateway.config.values.bounds import Pending
from gateway.config.values.places import FilePath, KeyPassword
from gateway.config.values.types import (
    Duration,
    ListOf,
    Off,
    Positive,
    Switch,
    WholeNumber,
    describe,
    is_from_file,
    problem,
    whole_number_schema,
)


class Timeouts(Model):
    """How long an upstream may take."""

    connect: Duration = Field(2_000_000, description="To make a connection.")
    queue: Duration = Field(10_000_000, description="For a free connection, if all are in use.")
    first_byte: Duration = Field(
        60_000_000, description="From the request sent to the first byte of the answer."
    )
    idle: Duration = Field(60_000_000, description="Between two pieces of an answer.")
    total: Annotated[Duration | None, Off] = Field(
        None,
        description="For the whole exchange; off for no end. A WebSocket has it to be opened.",
    )
    tunnel: Annotated[Duration | None, Off] = Field(
        3_600_000_000,
        description="Without a byte from either side of a WebSocket; off for no end.",
    )


class Target(Model):
    """One server of an upstream."""

    scheme: Literal["http", "https"] = "http"
    host: str = ""
    port: int = 0
    socket: str = ""
    weight: Annotated[WholeNumber, Field(ge=1, le=1_000), whole_number_schema(1, 1_000)] = Field(
        1, description="Its share of the requests, relative to the other targets."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, data: object, info: ValidationInfo) -> object:
        if isinstance(data, str):
            return cls._parts(data, ())
        if not isinstance(data, Mapping) or (
            ("host" in data or "socket" in data) and not is_from_file(info)
        ):
            return data
        if "url" not in data:
            raise problem(
                "a target lacks its url", "such as {url: http://127.0.0.1:9000, weight: 2}"
            )
        url = data["url"]
        if not isinstance(url, str):
            message = f"found {describe(url)}, a URL was expected"
            raise problem(message, "such as http://127.0.0.1:9000", under=("url",))
        rest = {key: value for key, value in data.items() if key != "url"}
        return {**rest, **cls._parts(url, ("url",))}

    @staticmethod
    def _parts(url: str, under: tuple[str, ...]) -> dict[str, Any]:
        try:
            origin = parse_target(url)
        except AddressError as error:
            raise problem(error.message, error.hint, under=under) from None
        if isinstance(origin, UnixAddress):
            return {"socket": origin.path}
        return {"scheme": origin.scheme, "host": origin.host, "port": origin.port}

    @property
    def url(self) -> str:
        """Scheme, host and port as a URL, or the path of a socket after `unix:`."""
        if self.socket:
            return f"unix:{self.socket}"
        return f"{self.scheme}://{Address(self.host, self.port)}"

    @property
    def authority(self) -> str:
        """Host and port as a `Host` field has them: without a default port (RFC 9110, 4.2.3)."""
        address = Address(self.host, self.port)
        return address.bare_host if self.port == DEFAULT_PORTS[self.scheme] else str(address)

    @property
    def tls_name(self) -> str:
        """The host as TLS asks for it and checks it: without DNS's last dot (RFC 6066, 3)."""
        return self.host.removesuffix(".")


class UpstreamTlsConfig(Model):
    """TLS to an upstream whose targets are `https://`."""

    ca: FilePath | None = Field(
        None, description="PEM: the authorities to trust; those of the system if left out."
    )
    cert: FilePath | None = Field(
        None, description="PEM: the certificate that the gateway shows if it is asked for one."
    )
    key: FilePath | None = Field(None, description="Its private key, PEM.")
    key_password: KeyPassword | None = Field(
        None, description="What opens the key, if it is encrypted: ${file:...}.", repr=False
    )
    server_name: str | None = Field(
        None,
        description="The name that is asked for (SNI) and checked; the host of the target if left "
        "out.",
    )
    verify: Switch = Field(True, description="Whether the certificate and its name are checked.")
    strict: Switch = Field(
        False,
        description="Whether certificates, the authorities' own too, must have every extension "
        "that RFC 5280 asks for, such as the Authority Key Identifier.",
    )

    @field_validator("server_name")
    @classmethod
    def _check_server_name(cls, name: str | None) -> str | None:
        if name is None:
            return None
        try:
            host = parse_host_pattern(name)
        except AddressError as error:
            raise problem(error.message, error.hint) from None
        if host.startswith("*."):
            raise problem(f"{name!r} is a pattern", "one name, such as api.internal")
        return host.strip("[]")

    @model_validator(mode="after")
    def _check_pair(self) -> UpstreamTlsConfig:
        if (self.cert is None) != (self.key is None):
            said, lacks = ("cert", "key") if self.key is None else ("key", "cert")
            raise problem(f"{said} without {lacks}", "name both: { cert: ..., key: ... }")
        if self.key_password is not None and self.key is None:
            hint = "put it beside the key that it opens"
            raise problem("key_password without key", hint, under=("key_password",))
        if not self.verify and self.ca is not None:
            message = "ca is there to verify, and verify is off"
            raise problem(message, "leave one of the two out", under=("ca",))
        if not self.verify and self.strict:
            message = "strict is how to verify, and verify is off"
            raise problem(message, "leave one of the two out", under=("strict",))
        return self


class UpstreamConfig(Model):
    """A named pool of servers that requests are forwarded to."""

    targets: Annotated[tuple[Target, ...], Field(min_length=1), ListOf] = Field(
        description="Where requests go: one URL, or a list of URLs or {url, weight}."
    )
    timeouts: Timeouts = Field(untouched(Timeouts), description="How long it may take.")
    retry: Annotated[RetryConfig | None, Off] = Field(
        None, description="When a request that failed is sent again: how many tries, or more."
    )
    max_connections: Positive = Field(1024, description="Open connections to each target at most.")
    max_pending: Pending = Field(
        "auto",
        description="Requests that may wait for a free connection to a target; more are answered "
        "503. auto for as many as there may be clients.",
    )
    keepalive: Duration = Field(
        60_000_000, description="How long an unused connection is kept open."
    )
    resolve_every: Annotated[Duration | None, Off] = Field(
        30_000_000,
        description="How often the names of targets are looked up again; off for only when no "
        "connection can be made.",
    )
    tls: UpstreamTlsConfig | None = Field(
        None, description="How targets with https:// are verified, and what they are shown."
    )
    balance: Balance = Field(
        "round_robin",
        description="Which target is next: round_robin in turn by weight, least_requests the one "
        "with the fewest in flight, random_two the better of two, {hash: KEY} the same for the "
        "same key, such as header:x-user.",
    )
    health: Annotated[HealthConfig | None, Off] = Field(
        None, description="Checks that leave out a target that is not well: a path, tcp, or more."
    )
    eject: Annotated[EjectConfig | None, Off] = Field(
        untouched(EjectConfig), description="When failing requests leave a target out."
    )
    breaker: Annotated[BreakerConfig | None, Off] = Field(
        None, description="When the whole upstream is not asked any more for a while."
    )
    slow_start: Annotated[Duration | None, Off] = Field(
        None, description="The time in which a target that came back gets its whole weight again."
    )
    if_none_healthy: Literal["all", "reject"] = Field(
        "all",
        description="With all targets left out: all uses them nevertheless, reject answers 503.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_targets(cls, data: object) -> object:
        return {"targets": data} if isinstance(data, str | list | tuple) else data
