"""Policies: limits, room to wait in, and what happens to the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from gateway.config.base import Model, untouched
from gateway.config.shorthand import KEY
from gateway.config.values import (
    Duration,
    LimitLine,
    Line,
    ListOf,
    Off,
    Positive,
    problem,
)

AlgorithmName = Literal["token_bucket", "sliding_window_log"]
OnStoreError = Literal["local", "open", "closed"]
IfMissing = Literal["ip", "reject", "skip", "shared"]
HeaderStyle = Literal["draft", "legacy", "both", "none"]

_BURST: Final = re.compile(r"\s(burst)\s")

MAX_LIMITS: Final = 16
MAX_LOG_COUNT: Final = 1_000_000
"""The sliding window log keeps one time for each request that counts."""


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
        description="problem (RFC 9457, JSON), text (one line), none, or any other text, which "
        "is sent as it is.",
    )


Queue = Annotated[QueueConfig | None, Off]


def bind(
    limits: tuple[LimitLine, ...], algorithm: str, queue: QueueConfig | None
) -> tuple[LimitLine, ...]:
    """The limits of a policy, with its algorithm and its longest wait."""
    max_wait_us = queue.max_wait if queue else 0
    return tuple(line.bind(algorithm, max_wait_us) for line in limits)


class PolicyConfig(Model):
    """Whose requests are counted together, how many may pass, and what happens to the rest."""

    algorithm: AlgorithmName = Field(
        "token_bucket",
        description="token_bucket refills continuously and keeps one number a key; "
        "sliding_window_log never lets more than the limit through in any window and keeps the "
        "time of each request.",
    )
    queue: Queue = Field(
        None, description="Room to wait in; off refuses at once what is over the limit."
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
    if_missing: IfMissing = Field(
        "ip",
        description="A request without the header, cookie or query parameter of its key: ip "
        "counts it by address, reject answers 400, skip does not count it, shared counts all "
        "such requests together.",
    )
    headers: HeaderStyle = Field(
        "both",
        description="Fields of the answer: draft (RateLimit, RateLimit-Policy), legacy "
        "(X-RateLimit-*), both or none.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_limits(cls, data: object) -> object:
        if isinstance(data, str | list | tuple):
            return {"limits": data}
        return _spell_out_limit(data)

    @field_validator("limits")
    @classmethod
    def _bind_limits(
        cls, limits: tuple[LimitLine, ...], info: ValidationInfo
    ) -> tuple[LimitLine, ...]:
        algorithm = info.data.get("algorithm", "token_bucket")
        if algorithm == "sliding_window_log":
            for index, line in enumerate(limits):
                _check_log(line, index)
        return bind(limits, algorithm, info.data.get("queue"))


def _spell_out_limit(data: object) -> object:
    """`limit:` as `limits:`; both at once are one too many."""
    if not isinstance(data, Mapping) or "limit" not in data:
        return data
    if "limits" in data:
        message = "limit and limits say the same"
        raise problem(message, "put all of them in limits", under=("limit", KEY))
    spelled = {key: value for key, value in data.items() if key != "limit"}
    return {**spelled, "limits": data["limit"]}


def _check_log(line: LimitLine, index: int) -> None:
    limit = line.limit
    burst = _BURST.search(line.text)
    if burst or limit.burst != limit.count:
        raise problem(
            "sliding_window_log has no burst: its limit is its burst",
            f"leave 'burst {limit.burst}' out, or use algorithm: token_bucket",
            column=burst.start(1) + 1 if burst else 0,
            under=(index,),
        )
    if limit.count > MAX_LOG_COUNT:
        raise problem(
            f"sliding_window_log would keep {limit.count} times for each key",
            f"at most {MAX_LOG_COUNT}; token_bucket keeps one number",
            under=(index,),
        )
