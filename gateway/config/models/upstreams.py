"""Upstreams: the servers that requests are forwarded to, and their timeouts."""

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
from gateway.config.values.findings import KEY
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
    """Timeouts of an upstream."""

    connect: Duration = Field(2_000_000, description="To connect.")
    queue: Duration = Field(
        10_000_000, description="To wait for a free connection, if all are in use."
    )
    first_byte: Duration = Field(
        60_000_000, description="From the end of the request to the first byte of the response."
    )
    idle: Duration = Field(60_000_000, description="Between two pieces of a response.")
    total: Annotated[Duration | None, Off] = Field(
        None,
        description=(
            "For the whole exchange; off for no limit. For a WebSocket, this covers the handshake."
        ),
    )
    tunnel: Annotated[Duration | None, Off] = Field(
        3_600_000_000,
        description="Without a byte from either side of a WebSocket; off for no limit.",
    )


class Target(Model):
    """One server of an upstream."""

    scheme: Literal["http", "https"] = "http"
    host: str = ""
    port: int = 0
    socket: str = ""
    weight: Annotated[WholeNumber, Field(ge=1, le=1_000), whole_number_schema(1, 1_000)] = Field(
        1, description="Its share of requests, relative to other targets."
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
                "a target needs a url", "for example {url: http://127.0.0.1:9000, weight: 2}"
            )
        url = data["url"]
        if not isinstance(url, str):
            message = f"found {describe(url)}, a URL was expected"
            raise problem(message, "for example http://127.0.0.1:9000", under=("url",))
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
        """Return scheme, host and port as a URL, or the path of a socket after `unix:`."""
        if self.socket:
            return f"unix:{self.socket}"
        return f"{self.scheme}://{Address(self.host, self.port)}"

    @property
    def authority(self) -> str:
        """Return host and port as in a `Host` field: without a default port (RFC 9110, 4.2.3)."""
        address = Address(self.host, self.port)
        return address.bare_host if self.port == DEFAULT_PORTS[self.scheme] else str(address)

    @property
    def tls_name(self) -> str:
        """Return the host for TLS: without the trailing dot of DNS (RFC 6066, 3)."""
        return self.host.removesuffix(".")


class UpstreamTlsConfig(Model):
    """TLS to an upstream whose targets are `https://`."""

    ca: FilePath | None = Field(
        None, description="PEM: trusted authorities; default: those of the system."
    )
    cert: FilePath | None = Field(
        None, description="PEM: the certificate that the gateway presents if asked."
    )
    key: FilePath | None = Field(None, description="Its private key, PEM.")
    key_password: KeyPassword | None = Field(
        None, description="The password of an encrypted key: ${file:...}.", repr=False
    )
    server_name: str | None = Field(
        None,
        description="The name requested (SNI) and verified; default: the host of the target.",
    )
    verify: Switch = Field(True, description="Whether the certificate and its name are verified.")
    strict: Switch = Field(
        False,
        description="Whether certificates, including those of authorities, must have every "
        "extension that RFC 5280 requires, such as the Authority Key Identifier.",
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
            raise problem(f"{name!r} is a pattern", "use one name, for example api.internal")
        return host.strip("[]")

    @model_validator(mode="after")
    def _check_pair(self) -> UpstreamTlsConfig:
        if (self.cert is None) != (self.key is None):
            said, lacks = ("cert", "key") if self.key is None else ("key", "cert")
            raise problem(f"{said} without {lacks}", "set both: { cert: ..., key: ... }")
        if self.key_password is not None and self.key is None:
            hint = "put it beside the key that it decrypts"
            raise problem("key_password without key", hint, under=("key_password",))
        if not self.verify and self.ca is not None:
            message = "ca has no effect: verify is off"
            raise problem(message, "remove one of the two", under=("ca",))
        if not self.verify and self.strict:
            message = "strict has no effect: verify is off"
            raise problem(message, "remove one of the two", under=("strict",))
        return self


def part_of(most: int, workers: int) -> int:
    """Return how many of something each of several workers may have, at least one.

    All of them together have no more than `most`, unless there are fewer than workers.
    """
    return max(1, most // workers) if most else 0


class UpstreamConfig(Model):
    """A named pool of servers that requests are forwarded to."""

    targets: Annotated[tuple[Target, ...], Field(min_length=1), ListOf] = Field(
        description="The targets: one URL, or a list of URLs or {url, weight}."
    )
    timeouts: Timeouts = Field(untouched(Timeouts), description="Timeouts.")
    retry: Annotated[RetryConfig | None, Off] = Field(
        None, description="Retries: the number of tries, or a mapping with options."
    )
    http2: Switch = Field(
        False,
        description="Whether the targets are spoken to with HTTP/2: those with https:// by ALPN, "
        "others by prior knowledge.",
    )
    max_connections: Positive = Field(1024, description="The most open connections to each target.")
    max_streams: Positive = Field(
        100,
        description="With HTTP/2, the most requests on a connection at a time; a target may allow "
        "fewer.",
    )
    max_pending: Pending = Field(
        "auto",
        description="Requests that may wait for a free connection to a target; others are answered "
        "with 503. auto for as many as there may be clients.",
    )
    keepalive: Duration = Field(
        60_000_000, description="How long an unused connection is kept open."
    )
    resolve_every: Annotated[Duration | None, Off] = Field(
        30_000_000,
        description="How often names of targets are resolved again; off to do so only when no "
        "connection can be made.",
    )
    tls: UpstreamTlsConfig | None = Field(
        None,
        description="TLS: how https:// targets are verified, and the certificate of the gateway.",
    )
    balance: Balance = Field(
        "round_robin",
        description="How targets are chosen: round_robin in turn, by weight; least_requests the "
        "one with the fewest in flight; random_two the better of two; {hash: KEY} "
        "the same one for the same key, such as header:x-user.",
    )
    health: Annotated[HealthConfig | None, Off] = Field(
        None,
        description=(
            "Health checks, which exclude unhealthy targets: a path, tcp, or a mapping with "
            "options."
        ),
    )
    eject: Annotated[EjectConfig | None, Off] = Field(
        untouched(EjectConfig), description="When failed requests exclude a target."
    )
    breaker: Annotated[BreakerConfig | None, Off] = Field(
        None, description="When the whole upstream is not used for a while."
    )
    slow_start: Annotated[Duration | None, Off] = Field(
        None, description="The time in which a returning target regains its full weight."
    )
    if_none_healthy: Literal["all", "reject"] = Field(
        "all",
        description="If no target is available: all uses them anyway, reject answers 503.",
    )

    @model_validator(mode="after")
    def _check_http2(self) -> UpstreamConfig:
        if self.health is not None and self.health.grpc is not None and not self.http2:
            message = "checks by gRPC need HTTP/2"
            raise problem(message, "set http2: true beside the targets", under=("health", KEY))
        if "max_streams" in self.model_fields_set and not self.http2:
            message = "max_streams has no effect: HTTP/1.1 has no streams"
            raise problem(message, "remove it, or set http2: true", under=("max_streams", KEY))
        return self

    @model_validator(mode="before")
    @classmethod
    def _from_targets(cls, data: object) -> object:
        return {"targets": data} if isinstance(data, str | list | tuple) else data
