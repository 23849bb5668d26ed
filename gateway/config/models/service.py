"""The gateway's environment: store, clients, admin listener and log."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from gateway.config.models.consistency import Part
from gateway.config.models.methods import MoreMethods
from gateway.config.values.address import Address
from gateway.config.values.base import Model
from gateway.config.values.bounds import Connections, Share, Speed, Watch, Workers
from gateway.config.values.places import ListenAddress, check_path
from gateway.config.values.redaction import redact
from gateway.config.values.store_url import is_same_store, parse_store_url, store_url_schema
from gateway.config.values.types import (
    Delay,
    Duration,
    HostPattern,
    ListOf,
    Off,
    Positive,
    Size,
    Switch,
    WholeNumber,
    problem,
    whole_number_schema,
)
from gateway.stores.urls import StoreUrlError


def _check_store_url(url: str) -> str:
    try:
        parse_store_url(url)
    except StoreUrlError as error:
        raise problem(error.message, error.hint) from None
    return url.strip()


class MigrateConfig(Model):
    """The target of a migration, and its progress."""

    to: str = Field(
        description="The URL of the store that counts move to.",
        repr=False,
        json_schema_extra=store_url_schema,
    )
    share: Part = Field(
        "100%",
        description=(
            "The share of keys that both stores limit; the others are limited by the old store."
        ),
    )
    policies: Annotated[tuple[str, ...], ListOf] = Field(
        (), description="Policies whose counts move; default: all policies."
    )

    @field_validator("to")
    @classmethod
    def _check_to(cls, url: str) -> str:
        return _check_store_url(url)


class StoreConfig(Model):
    """The store of counts."""

    url: str = Field(
        "memory://",
        description="memory:// for a single gateway; redis://host:port/db or rediss:// to share "
        "limits between gateways. Options follow a question mark: "
        "memory://?max_keys=100000.",
        repr=False,
        json_schema_extra=store_url_schema,
    )
    deadline: Duration = Field(
        20_000, description="How long a decision may take before on_store_error applies."
    )
    share: Share = Field(
        "auto",
        description="The number of gateways that a limit is divided by while each decides alone; "
        "auto counts those last seen in the store.",
    )

    migrate: MigrateConfig | None = Field(
        None, description="Another store that counts move to, without a gap in any limit."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        return _check_store_url(url)

    @model_validator(mode="after")
    def _check_migrate(self) -> StoreConfig:
        if self.migrate is None:
            return self
        old, new = self.url, self.migrate.to
        if old == new or is_same_store(parse_store_url(old), parse_store_url(new)):
            message = "counts would move to the store they are in"
            raise problem(message, "use another store", under=("migrate", "to"))
        return self

    @property
    def deadline_of_workers(self) -> int:
        """Return how long workers wait for the limiter of their own gateway, in microseconds.

        One second unless configured otherwise: no network can fail in between, the process can at
        worst be busy, and no other counts are as exact.
        """
        return self.deadline if "deadline" in self.model_fields_set else 1_000_000

    @property
    def redacted_url(self) -> str:
        """Return the URL for logs and messages, without credentials."""
        return redact(self.url)


LEAST_WATCHDOG_US: Final = 1_000_000


class ServerConfig(Model):
    """Worker processes, and limits of client connections and requests."""

    workers: Workers = Field(
        1,
        description="Processes that serve requests; auto for one per usable CPU. With the memory "
        "store they are one limiter.",
    )
    watchdog: Annotated[Duration | None, Off] = Field(
        5_000_000,
        description="With several workers, how long a process may hang before it is killed and "
        "restarted; off for no limit.",
    )
    watch: Watch = Field(
        None,
        description="Whether the files of the configuration are watched, and reloaded when they "
        "change; a duration is how often to look at them, on is every second.",
    )
    header_timeout: Duration = Field(
        10_000_000, description="The time to send the head of a request."
    )
    body_timeout: Duration = Field(
        60_000_000, description="The time between two pieces of a body, sent or received."
    )
    min_rate: Annotated[Speed | None, Off] = Field(
        50,
        description="The minimum average rate at which a client must send a body or read a "
        "response; off for none.",
    )
    keepalive_timeout: Duration = Field(
        75_000_000, description="The time between a response and the next request."
    )
    shutdown_delay: Delay = Field(
        0,
        description="On SIGTERM, how long connections are still accepted while /readyz already "
        "answers 503, so that load balancers can switch.",
    )
    shutdown_timeout: Duration = Field(
        30_000_000, description="The time for requests in flight to end when the gateway stops."
    )
    max_header_size: Size = Field(
        16 << 10, description="The size of one header field, or of the request line."
    )
    max_headers: Annotated[WholeNumber, Field(ge=1, le=10_000), whole_number_schema(1, 10_000)] = (
        Field(100, description="The number of header fields of a request.")
    )
    max_head_size: Size = Field(
        64 << 10, description="The size of the request line and all header fields together."
    )
    max_body: Annotated[Size | None, Off] = Field(
        None, description="The size of a request body; off for any size."
    )
    max_waiting: Positive = Field(
        10_000, description="Requests that may wait for a turn, over all policies and keys."
    )
    max_connections: Connections = Field(
        "auto",
        description="Open client connections; auto for as many as the limit of open files allows.",
    )
    max_connections_per_ip: Annotated[Positive | None, Off] = Field(
        None,
        description="Open client connections of one address, IPv6 by ipv6_prefix; off for no "
        "limit. Trusted proxies are exempt.",
    )
    methods: Annotated[tuple[MoreMethods, ...], ListOf] = Field(
        (),
        description="Methods that clients may use besides those of HTTP; others are answered with "
        "501.",
    )

    @field_validator("watchdog")
    @classmethod
    def _check_watchdog(cls, watchdog: int | None) -> int | None:
        if watchdog is not None and watchdog < LEAST_WATCHDOG_US:
            raise problem(
                "a healthy process may be silent for some tenths of a second",
                "use 1s or more, or off",
            )
        return watchdog


class AdminConfig(Model):
    """The listener for health, readiness and metrics."""

    listen: ListenAddress = Field(Address("127.0.0.1", 9901), description="host:port.")
    hosts: Annotated[tuple[HostPattern, ...], ListOf] = Field(
        (),
        description="Further names that requests may have in Host, such as sluice, or *.svc for "
        "all names that end so.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_address(cls, data: object) -> object:
        return {"listen": data} if isinstance(data, str | Address) else data


class ReadyConfig(Model):
    """When the gateway says that it should get traffic."""

    needs_store: Switch = Field(
        False,
        description="Whether it is not ready while a store is unavailable that a policy with "
        "on_store_error: closed or a Throttr listener needs; by default, only if every route and "
        "every listener would refuse.",
    )


class LogConfig(Model):
    """The log of requests and events."""

    format: Literal["json", "text"] = Field(
        "json", description="json for machines, text for people."
    )
    output: str = Field("stdout", description="stdout, stderr or the path of a file.", min_length=1)
    access: Switch = Field(True, description="Whether each request is logged.")
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level of events that are logged."
    )

    @field_validator("output")
    @classmethod
    def _check_output(cls, output: str) -> str:
        if output in {"stdout", "stderr"}:
            return output
        if "/" in output:
            check_path(output)
            return output
        raise problem(
            f"{output!r} is not stdout, stderr or a path", f"a path contains a slash: ./{output}"
        )
