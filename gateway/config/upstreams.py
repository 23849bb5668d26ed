"""Upstreams: servers that requests are forwarded to, and how long they may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    ValidationInfo,
    model_validator,
)

from gateway.config.address import Address, AddressError, parse_origin
from gateway.config.balancing import Balance, BreakerConfig, EjectConfig, HealthConfig
from gateway.config.base import Model, untouched
from gateway.config.values import (
    Duration,
    ListOf,
    Off,
    Positive,
    WholeNumber,
    describe,
    is_from_file,
    problem,
    whole_number_schema,
)


class Timeouts(Model):
    """How long an upstream may take."""

    connect: Duration = Field(2_000_000, description="To make a connection.")
    first_byte: Duration = Field(
        60_000_000, description="From the request sent to the first byte of the answer."
    )
    idle: Duration = Field(60_000_000, description="Between two pieces of an answer.")
    total: Annotated[Duration | None, Off] = Field(
        None, description="For the whole exchange; off for no end."
    )


class Target(Model):
    """One server of an upstream."""

    scheme: Literal["http", "https"] = "http"
    host: str
    port: int
    weight: Annotated[WholeNumber, Field(ge=1, le=1_000), whole_number_schema(1, 1_000)] = Field(
        1, description="Its share of the requests, relative to the other targets."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, data: object, info: ValidationInfo) -> object:
        if isinstance(data, str):
            return cls._parts(data, ())
        if not isinstance(data, Mapping) or ("host" in data and not is_from_file(info)):
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
            origin = parse_origin(url)
        except AddressError as error:
            raise problem(error.message, error.hint, under=under) from None
        return {"scheme": origin.scheme, "host": origin.host, "port": origin.port}

    @property
    def url(self) -> str:
        """Scheme, host and port as a URL."""
        return f"{self.scheme}://{Address(self.host, self.port)}"


class UpstreamConfig(Model):
    """A named pool of servers that requests are forwarded to."""

    targets: Annotated[tuple[Target, ...], Field(min_length=1), ListOf] = Field(
        description="Where requests go: one URL, or a list of URLs or {url, weight}."
    )
    timeouts: Timeouts = Field(untouched(Timeouts), description="How long it may take.")
    max_connections: Positive = Field(1024, description="Open connections to each target at most.")
    max_pending: Annotated[
        WholeNumber, Field(ge=0, le=1_000_000_000), whole_number_schema(0, 1_000_000_000)
    ] = Field(
        1024, description="Requests that may wait for a free connection; more are answered 503."
    )
    keepalive: Duration = Field(
        60_000_000, description="How long an unused connection is kept open."
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
