"""Policies: limits, queues, and responses to refused requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import (
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from gateway.config.models.answers import OnLimit
from gateway.config.models.consistency import (
    PART_SCHEMA,
    ConsistencyName,
    EventualConfig,
    LeasedConfig,
    check_consistency,
    parts,
    read_part,
    terms_of,
)
from gateway.config.models.costs import Costed, check_costs
from gateway.config.models.throttlex import PLACEHOLDER, ThrottlexConfig
from gateway.config.models.tiers import check_tiers
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
    describe,
    problem,
)
from gateway.limits.consistency_mode import PARTS_PER_WHOLE, Terms
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
IfMissing = Literal["ip", "reject", "unauthorized", "skip", "shared"]
HeaderStyle = Literal["draft", "legacy", "both", "throttlex", "none"]

MAX_LIMITS: Final = 16
MIN_LEASE_US: Final = 1_000_000
"""Leases are renewed after a third of their time; each renewal is a call to the store."""


class QueueConfig(Model):
    """A queue for requests over their limit."""

    max: Positive = Field(100, description="How many requests of one key may wait.")
    max_wait: Duration = Field(
        description="Requests that cannot get a turn within this time are refused immediately."
    )


Queue = Annotated[QueueConfig | None, Off]


def bind(
    limits: tuple[LimitLine, ...],
    algorithm: str,
    queue: QueueConfig | None,
    *,
    lease_us: int,
    count_refused: bool,
    max_debt: int | None = 0,
) -> tuple[LimitLine, ...]:
    """Read the limits of a policy, with its options applied to them."""
    max_wait_us = queue.max_wait if queue else 0
    return tuple(
        line.bind(algorithm, max_wait_us, lease_us, count_refused=count_refused, max_debt=max_debt)
        for line in limits
    )


def _read_lines(
    limits: tuple[LimitLine, ...],
    algorithm: str,
    queue: QueueConfig | None = None,
    *,
    lease_us: int = LEASE_US,
    count_refused: bool = False,
) -> tuple[LimitLine, ...]:
    """Check and bind limits in our own notation; arguments as in `bind`."""
    for index, line in enumerate(limits):
        check_line(line, index, algorithm, count_refused=count_refused)
    return bind(limits, algorithm, queue, lease_us=lease_us, count_refused=count_refused)


def has_queue(limits: tuple[LimitLine, ...]) -> bool:
    """Return whether requests can wait for one of these limits: all but those in flight."""
    return any(
        line.limit.algorithm != "concurrency" and not line.limit.count_refused for line in limits
    )


def _from_limits(data: object) -> object:
    """Read a line, or a list of them, as a mapping with `limits`."""
    if isinstance(data, str | list | tuple):
        return {"limits": data}
    return _spell_out_throttlex(_spell_out_limit(data))


def _read_mode(value: object) -> str:
    if value in {"enforce", "shadow"}:
        return str(value)
    if isinstance(value, str) and "%" in value:
        return read_part(value)
    raise problem(
        f"{describe(value)} is not valid here",
        "use enforce, shadow, or the share of keys that the policy is enforced for, such as 5%",
    )


Mode = Annotated[
    str,
    PlainValidator(_read_mode),
    WithJsonSchema({"anyOf": [{"enum": ["enforce", "shadow"]}, PART_SCHEMA]}),
]
"""Whether a policy is enforced: for all keys, for none, or for a share such as `5%`."""


class CandidateConfig(Model):
    """Other limits of a policy, which are tried beside those that are enforced."""

    algorithm: AlgorithmName = Field(
        "token_bucket", description="The algorithm, as in a policy; default: token_bucket."
    )
    limits: Annotated[tuple[Line, ...], Field(min_length=1, max_length=MAX_LIMITS), ListOf] = Field(
        description="One limit or a list."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_limits(cls, data: object) -> object:
        return _from_limits(data)

    @field_validator("limits")
    @classmethod
    def _bind_limits(
        cls, limits: tuple[LimitLine, ...], info: ValidationInfo
    ) -> tuple[LimitLine, ...]:
        bound = _read_lines(limits, info.data.get("algorithm", "token_bucket"))
        _check_in_flight(bound)
        return bound


def _check_in_flight(limits: tuple[LimitLine, ...]) -> None:
    for line in limits:
        if line.limit.algorithm == "concurrency":
            message = f"requests in flight are held, not only counted: {line.text}"
            raise problem(message, "try a rate, or enforce this limit")


class PolicyConfig(Costed):
    """Which requests count together, how many may pass, and what happens to the rest."""

    algorithm: AlgorithmName = Field(
        "token_bucket",
        description="token_bucket refills continuously and keeps one number per key; "
        "sliding_window_log never exceeds the limit in any window and keeps the time of "
        "each request; sliding_window_counter estimates this from two numbers; "
        "fixed_window starts at zero in each period of the clock; paced_history allows a "
        "burst and then one request at a time; concurrency is for limits such as 50 at "
        "once.",
    )
    queue: Queue = Field(
        None, description="A queue; off refuses requests over the limit immediately."
    )
    lease: Duration = Field(
        LEASE_US,
        description="How long a request in flight counts after the last sign of life of its "
        "gateway; for limits such as 50 at once.",
    )
    count_refused: Switch = Field(
        False,
        description="Whether refused requests count as well, so that a client that does not slow "
        "down stays refused; for sliding and fixed windows.",
    )
    throttlex: ThrottlexConfig | None = Field(
        None, description="A limit in ThrottleX's notation, instead of limits."
    )
    limits: Annotated[tuple[Line, ...], Field(min_length=1, max_length=MAX_LIMITS), ListOf] = Field(
        description=(
            "One limit or a list; a request must be admitted by all of them, or none is spent."
        )
    )
    on_limit: OnLimit = Field(
        untouched(OnLimit), description="The response to a request over its limit."
    )
    on_store_error: OnStoreError = Field(
        "local",
        description="If the store does not reply in time: local decides in this gateway with a "
        "share of the limit, open admits all requests, closed answers 503.",
    )
    consistency: ConsistencyName = Field(
        "strict",
        description="Among gateways that share a store: strict asks it for each request; leased "
        "takes some tokens at a time, with a bounded excess; eventual decides from the "
        "last known counts and reports afterwards.",
    )
    leased: LeasedConfig = Field(
        untouched(LeasedConfig), description="The terms of leases, if the policy is leased."
    )
    eventual: EventualConfig = Field(
        untouched(EventualConfig), description="When to report, if the policy is eventual."
    )
    mode: Mode = Field(
        "enforce",
        description="enforce; shadow to decide, count and log only, and never act; or the share of "
        "keys that the policy is enforced for, such as 5%.",
    )
    candidate: CandidateConfig | None = Field(
        None,
        description="Other limits that are tried beside these, in shadow mode: a limit, a list, or "
        "a mapping with algorithm and limits.",
    )
    if_missing: IfMissing = Field(
        "ip",
        description="For requests without the header, cookie or query parameter of the key: ip "
        "counts them by address, reject answers 400, unauthorized answers 401, skip does not "
        "count them, shared counts all of them together.",
    )
    secret: Switch = Field(
        False,
        description="Whether keys are replaced by an HMAC with key_secret, in the store and "
        "wherever they would be shown.",
    )
    headers: HeaderStyle = Field(
        "both",
        description="Fields of responses: draft (RateLimit, RateLimit-Policy), legacy "
        "(X-RateLimit-*), both, throttlex (X-RateLimit-Limit and -Remaining, and "
        "Retry-After always) or none.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_limits(cls, data: object) -> object:
        return _from_limits(data)

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
        count_refused: bool = said.get("count_refused", False)
        return _read_lines(
            limits,
            said.get("algorithm", "token_bucket"),
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
            raise problem("a lease must be at least 1s", "for example 60s", under=("lease",))
        if self.queue and all(in_flight):
            message = "there can be no queue: it is unknown when requests in flight will end"
            raise problem(message, "remove the queue", under=("queue", KEY))
        if self.queue and self.count_refused:
            message = "a policy that counts refused requests cannot have a queue"
            raise problem(message, "remove one of them", under=("queue", KEY))
        if self.mode != "enforce" and any(in_flight):
            message = "requests in flight are held, not only counted: such a policy is enforced"
            raise problem(message, "remove the mode, or try a rate", under=("mode",))
        if self.candidate is not None and self.throttlex is not None:
            message = "a policy of ThrottleX has no candidate"
            raise problem(message, "try another policy with mode: shadow", under=("candidate", KEY))
        check_costs(self)
        check_tiers(
            self,
            self.algorithm,
            count_refused=self.count_refused,
            is_throttlex=self.throttlex is not None,
        )
        of_tiers = (line for lines in self.tiers.values() for line in lines)
        every = (*self.limits, *of_tiers)
        check_consistency(self.consistency, every, self.leased, self.eventual, said)
        return self

    @property
    def enforced_parts(self) -> int:
        """Return for how many keys it is enforced, in parts of `PARTS_PER_WHOLE`."""
        if self.mode == "enforce":
            return PARTS_PER_WHOLE
        return 0 if self.mode == "shadow" else parts(self.mode)

    @property
    def terms(self) -> Terms | None:
        """Return how exactly the limits are kept among gateways; None for strict."""
        return terms_of(self.consistency, self.leased, self.eventual)

    @property
    def algorithm_of_lines(self) -> str:
        """Return the algorithm of lines that name none; empty if all of them name one."""
        return "" if self.throttlex is not None else self.algorithm


def candidate_name(name: str) -> str:
    """Return the name of a policy's candidate in metrics, logs and stores."""
    return f"{name}~candidate"


def with_candidates(policies: Mapping[str, PolicyConfig]) -> dict[str, PolicyConfig]:
    """Return policies, and the candidates of those that have one, which are only tried out."""
    candidates = {
        candidate_name(name): policy.model_copy(
            update={
                "limits": policy.candidate.limits,
                "algorithm": policy.candidate.algorithm,
                "queue": None,
                "consistency": "strict",
                "count_refused": False,
                "mode": "shadow",
                "candidate": None,
                "tier": None,
                "tiers": {},
            }
        )
        for name, policy in policies.items()
        if policy.candidate is not None
    }
    return {**policies, **candidates}


def answers_of_throttlex(
    on_limit: OnLimit, said: set[str], said_of_answers: set[str]
) -> dict[str, Any]:
    """Return how a ThrottleX policy responds by default: as its clients expect.

    Args:
        on_limit: the response otherwise.
        said: the fields that the policy and the defaults set.
        said_of_answers: the fields that they set under `on_limit`.
    """
    update: dict[str, Any] = {}
    if "headers" not in said:
        update["headers"] = "throttlex"
    if "body" not in said_of_answers:
        update["on_limit"] = on_limit.model_copy(update={"body": "throttlex"})
    return update


def _spell_out_limit(data: object) -> object:
    """Read `limit:` as `limits:`; both together are an error."""
    if not isinstance(data, Mapping) or "limit" not in data:
        return data
    if "limits" in data:
        message = "limit and limits cannot be combined"
        raise problem(message, "put all of them in limits", under=("limit", KEY))
    spelled = {key: value for key, value in data.items() if key != "limit"}
    return {**spelled, "limits": data["limit"]}


def _spell_out_throttlex(data: object) -> object:
    """Refuse other limits beside `throttlex:`, which is the limit."""
    if not isinstance(data, Mapping) or data.get("throttlex") is None:
        return data
    if "limits" in data:
        message = "throttlex is the limit of this policy, and there are other limits"
        raise problem(message, "remove one of the two", under=("throttlex", KEY))
    return {**data, "limits": (PLACEHOLDER,)}


def _check_throttlex(config: ThrottlexConfig, consistency: str, said: set[str]) -> None:
    for name in ("algorithm", "lease", "count_refused"):
        if name in said:
            message = f"{name} is for limits in our own notation"
            raise problem(
                message, "remove it: the type under throttlex is enough", under=(name, KEY)
            )
    if config.policies == "table" and consistency != "strict":
        message = (
            f"the numbers of a key may change at any time: such a policy cannot be {consistency}"
        )
        raise problem(message, "use strict, which is the default", under=("consistency",))
