"""Policies: limits, room to wait in, and what happens to the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gateway.config.models.consistency import (
    ConsistencyName,
    EventualConfig,
    LeasedConfig,
    check_consistency,
    terms_of,
)
from gateway.config.models.throttlex import PLACEHOLDER, ThrottlexConfig
from gateway.config.values.base import Model, untouched
from gateway.config.values.findings import KEY
from gateway.config.values.lines import check_line
from gateway.config.values.types import (
    Duration,
    LimitLine,
    Line,
    ListOf,
    Off,
    Positive,
    Switch,
    problem,
)
from gateway.limits.consistency_mode import Terms
from gateway.limits.notation import LEASE_US

AlgorithmName = Literal[
    "token_bucket",
    "sliding_window_log",
    "sliding_window_counter",
    "fixed_window",
    "paced_history",
    "concurrency",
]
OnStoreError = Literal["local", "open", "closed"]
IfMissing = Literal["ip", "reject", "skip", "shared"]
HeaderStyle = Literal["draft", "legacy", "both", "throttlex", "none"]

MAX_LIMITS: Final = 16
MIN_LEASE_US: Final = 1_000_000
"""Leases are renewed by the third of their time; each renewal is a call of the store."""


class QueueConfig(Model):
    """Room to wait in, for requests a little over their limit."""

    max: Positive = Field(100, description="Requests of one key that may wait at a time.")
    max_wait: Duration = Field(
        description="Who cannot have a turn within this time is refused at once."
    )


class OnLimit(Model):
    """How a request over its limit is answered."""

    status: Literal[429, 503] = Field(429, description="The status code.")
    body: str = Field(
        "problem",
        description="problem (RFC 9457, JSON), text (one line), throttlex (ThrottleX's JSON), "
        "none, or any other text, which is sent as it is.",
    )


Queue = Annotated[QueueConfig | None, Off]


def bind(
    limits: tuple[LimitLine, ...],
    algorithm: str,
    queue: QueueConfig | None,
    *,
    lease_us: int,
    count_refused: bool,
    may_owe: bool = False,
) -> tuple[LimitLine, ...]:
    """The limits of a policy, with what it says of all of them."""
    max_wait_us = queue.max_wait if queue else 0
    return tuple(
        line.bind(algorithm, max_wait_us, lease_us, count_refused=count_refused, may_owe=may_owe)
        for line in limits
    )


def has_queue(limits: tuple[LimitLine, ...]) -> bool:
    """Whether somebody may wait for one of these limits: all but what is in flight."""
    return any(
        line.limit.algorithm != "concurrency" and not line.limit.count_refused for line in limits
    )


class PolicyConfig(Model):
    """Whose requests are counted together, how many may pass, and what happens to the rest."""

    algorithm: AlgorithmName = Field(
        "token_bucket",
        description="token_bucket refills continuously and keeps one number a key; "
        "sliding_window_log never lets more than the limit through in any window and keeps the "
        "time of each request; sliding_window_counter estimates the same from two numbers; "
        "fixed_window counts anew in each period of the clock; paced_history lets a burst "
        "through and then one at a time; concurrency is for limits such as 50 at once.",
    )
    queue: Queue = Field(
        None, description="Room to wait in; off refuses at once what is over the limit."
    )
    lease: Duration = Field(
        LEASE_US,
        description="How long a request in flight is counted after the last sign of life of "
        "the gateway that holds it; for limits such as 50 at once.",
    )
    count_refused: Switch = Field(
        False,
        description="Whether a refused request counts as well, so that who does not stop asking "
        "stays refused; for sliding windows and fixed ones.",
    )
    throttlex: ThrottlexConfig | None = Field(
        None, description="A limit in ThrottleX's words, instead of limits."
    )
    limits: Annotated[tuple[Line, ...], Field(min_length=1, max_length=MAX_LIMITS), ListOf] = Field(
        description="One limit or a list; all of them let a request through or none is spent."
    )
    on_limit: OnLimit = Field(
        untouched(OnLimit), description="How a request over its limit is answered."
    )
    on_store_error: OnStoreError = Field(
        "local",
        description="When the store does not answer in time: local decides alone with a share "
        "of the limit, open lets everything through, closed answers 503.",
    )
    consistency: ConsistencyName = Field(
        "strict",
        description="Among gateways that share a store: strict asks it for each request; leased "
        "takes some tokens at a time, for a bounded excess; eventual decides from what was last "
        "heard and reports afterwards.",
    )
    leased: LeasedConfig = Field(
        untouched(LeasedConfig), description="What a lease is, if the policy is leased."
    )
    eventual: EventualConfig = Field(
        untouched(EventualConfig), description="When to report, if the policy is eventual."
    )
    if_missing: IfMissing = Field(
        "ip",
        description="A request without the header, cookie or query parameter of its key: ip "
        "counts it by address, reject answers 400, skip does not count it, shared counts all "
        "such requests together.",
    )
    headers: HeaderStyle = Field(
        "both",
        description="Fields of the answer: draft (RateLimit, RateLimit-Policy), legacy "
        "(X-RateLimit-*), both, throttlex (X-RateLimit-Limit and -Remaining, and Retry-After "
        "always) or none.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_limits(cls, data: object) -> object:
        if isinstance(data, str | list | tuple):
            return {"limits": data}
        return _spell_out_throttlex(_spell_out_limit(data))

    @field_validator("limits")
    @classmethod
    def _bind_limits(
        cls, limits: tuple[LimitLine, ...], info: ValidationInfo
    ) -> tuple[LimitLine, ...]:
        said = info.data
        if said.get("throttlex") is not None:
            line: LimitLine = said["throttlex"].line
            queue: QueueConfig | None = said.get("queue")
            return bind((line,), "", queue, lease_us=LEASE_US, count_refused=False)
        algorithm: str = said.get("algorithm", "token_bucket")
        count_refused: bool = said.get("count_refused", False)
        for index, line in enumerate(limits):
            check_line(line, index, algorithm, count_refused=count_refused)
        return bind(
            limits,
            algorithm,
            None if count_refused else said.get("queue"),
            lease_us=said.get("lease", LEASE_US),
            count_refused=count_refused,
        )

    @model_validator(mode="after")
    def _check_together(self) -> PolicyConfig:
        said = self.model_fields_set
        if self.throttlex is not None:
            _check_throttlex(self.throttlex, self.consistency, said)
        in_flight = [line.limit.algorithm == "concurrency" for line in self.limits]
        if "lease" in said and not any(in_flight):
            message = "no limit of this policy has a lease"
            raise problem(message, "a lease is for limits such as 50 at once", under=("lease", KEY))
        if self.lease < MIN_LEASE_US:
            raise problem("a lease is at least 1s", "such as 60s", under=("lease",))
        if self.queue and all(in_flight):
            message = "nobody can say when a request in flight will end: there is no queue for it"
            raise problem(message, "leave the queue out", under=("queue", KEY))
        if self.queue and self.count_refused:
            message = "a policy that counts refused requests has no queue"
            raise problem(message, "leave one of them out", under=("queue", KEY))
        check_consistency(self.consistency, self.limits, self.leased, self.eventual, said)
        return self

    @property
    def terms(self) -> Terms | None:
        """How exactly the limits are kept among gateways; None for strict."""
        return terms_of(self.consistency, self.leased, self.eventual)

    @property
    def algorithm_of_lines(self) -> str:
        """The algorithm of lines that say none; empty if all of them do."""
        return "" if self.throttlex is not None else self.algorithm


def answers_of_throttlex(
    on_limit: OnLimit, said: set[str], said_of_answers: set[str]
) -> dict[str, Any]:
    """How a policy in ThrottleX's words answers where nobody says: its clients know these answers.

    Args:
        on_limit: what it would answer otherwise.
        said: what the policy and the defaults say themselves, and
        said_of_answers: what they say under `on_limit`.
    """
    update: dict[str, Any] = {}
    if "headers" not in said:
        update["headers"] = "throttlex"
    if "body" not in said_of_answers:
        update["on_limit"] = on_limit.model_copy(update={"body": "throttlex"})
    return update


def _spell_out_limit(data: object) -> object:
    """`limit:` as `limits:`; both at once are one too many."""
    if not isinstance(data, Mapping) or "limit" not in data:
        return data
    if "limits" in data:
        message = "limit and limits say the same"
        raise problem(message, "put all of them in limits", under=("limit", KEY))
    spelled = {key: value for key, value in data.items() if key != "limit"}
    return {**spelled, "limits": data["limit"]}


def _spell_out_throttlex(data: object) -> object:
    """`throttlex:` is a limit of its own."""
    if not isinstance(data, Mapping) or data.get("throttlex") is None:
        return data
    if "limits" in data:
        message = "throttlex is the limit of this policy, and it has others"
        raise problem(message, "one of the two", under=("throttlex", KEY))
    return {**data, "limits": (PLACEHOLDER,)}


def _check_throttlex(config: ThrottlexConfig, consistency: str, said: set[str]) -> None:
    for name in ("algorithm", "lease", "count_refused"):
        if name in said:
            message = f"{name} is for limits in our own notation"
            raise problem(message, "the type under throttlex says all", under=(name, KEY))
    if config.policies == "table" and consistency != "strict":
        message = f"the numbers of a key may change at any time: such a policy is not {consistency}"
        raise problem(message, "strict, which it is by itself", under=("consistency",))
