"""What a process that measures a library is told, and what it answers: JSON, a line each.

Nothing is imported here but the standard library: rivals have an environment of their own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from typing import Self

READY = "ready"
"""What a process says when it can be given orders."""

Burst = Callable[[Iterable[str]], int | Awaitable[int]]
"""Asks for these keys, one after the other; how many of them were let through."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit for each key.

    Attributes:
        name: what the load under it is called.
        count: how many may pass, also at once.
        period_s: in how many seconds.
    """

    name: str
    count: int
    period_s: int


@dataclass(frozen=True, slots=True)
class Job:
    """What one process measures.

    Attributes:
        module: the module of `bench.limiter.adapters`.
        kind: the library's own word for the algorithm.
        store: the URL of what holds the counts.
        keys: how many different keys are asked for.
        in_flight: how many decisions are under way at a time.
        quotas: the limits; each is a limiter of its own.
    """

    module: str
    kind: str
    store: str
    keys: int
    in_flight: int
    quotas: tuple[Quota, ...]

    def as_text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What `as_text` wrote."""
        fields = json.loads(text)
        fields["quotas"] = tuple(Quota(**quota) for quota in fields["quotas"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Order:
    """One measurement.

    Attributes:
        quota: under which limit.
        seconds: how long; 0 to go by `passes`.
        passes: how many times to ask for every key.
        seed: of the order in which keys are asked for.
    """

    quota: str
    seconds: float = 0.0
    passes: int = 0
    seed: int = 0

    def as_text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What `as_text` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Sample:
    """What came of an order.

    Attributes:
        decisions: how many were made.
        passed: how many of them let a request through.
        seconds: how long they took.
        cpu_seconds: the time of the processor that the process has spent meanwhile, in all of
            its threads.
        median_ms: how long one decision took; 0 where there was one at a time.
        p99_ms: likewise.
    """

    decisions: int
    passed: int
    seconds: float
    cpu_seconds: float
    median_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def per_second(self) -> float:
        """Decisions a second."""
        return self.decisions / self.seconds

    @property
    def per_cpu_second(self) -> float:
        """Decisions in a second of the processor."""
        return self.decisions / self.cpu_seconds

    @property
    def cpu_share(self) -> float:
        """How busy the process kept its CPU, from 0 to 1."""
        return self.cpu_seconds / self.seconds

    @property
    def refused_share(self) -> float:
        """From 0, nobody was refused, to 1."""
        return 1 - self.passed / self.decisions

    def as_text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """What `as_text` wrote."""
        return cls(**json.loads(text))


Opened = Callable[[Job, Quota], AbstractAsyncContextManager[Burst]]
"""The function of an adapter."""
