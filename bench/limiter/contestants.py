"""Which library has which algorithm, and how it is asked."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace

from bench.errors import BenchError
from bench.programs import VENV, python

OURS = "Sluice"


@dataclass(frozen=True, slots=True)
class Library:
    """A contestant.

    Attributes:
        name: the row in the tables.
        call: what its users write.
        module: its module in `bench.limiter.adapters`.
        kind: its own word for the algorithm.
        is_rival: whether it lives in the environment of the rivals.
    """

    name: str
    call: str
    module: str
    kind: str
    is_rival: bool = True

    def python(self) -> str:
        """The interpreter that has it.

        Raises:
            BenchError: the rivals are not installed.
        """
        if not self.is_rival:
            return python()
        path = VENV / "bin" / "python"
        if not path.exists():
            raise BenchError(f"{self.name} is not installed: run `python -m bench.install`")
        return str(path)


@dataclass(frozen=True, slots=True)
class Field:
    """The libraries that have one algorithm, ours first.

    Attributes:
        algorithm: what it is called in titles.
        in_memory: with counts in the process.
        on_redis: asynchronous ones, with counts in Redis.
    """

    algorithm: str
    in_memory: tuple[Library, ...]
    on_redis: tuple[Library, ...]


def sluice(algorithm: str) -> Library:
    """Ours, with one of its algorithms."""
    return Library(OURS, "await limiter.acquire(key)", "sluice", algorithm, is_rival=False)


def _limits(strategy: str) -> Library:
    return Library("limits", "limiter.hit(item, key)", "limits", strategy)


def _limits_on_redis(strategy: str) -> tuple[Library, ...]:
    return tuple(
        Library(f"limits, {name}", "await limiter.hit(item, key)", "limits", f"{strategy} {client}")
        for name, client in (("coredis", "coredis"), ("redis-py", "redispy"))
    )


def _throttled(kind: str, name: str = "throttled-py") -> Library:
    return Library(name, "throttle.limit(key)", "throttled", kind)


def _pyrate(kind: str) -> Library:
    return Library("pyrate-limiter", "limiter.try_acquire(key, blocking=False)", "pyrate", kind)


def _awaited(library: Library) -> Library:
    """The asynchronous twin, which is called by the same name."""
    return replace(library, call=f"await {library.call}")


_BUCKETS = (
    _throttled("gcra", "throttled-py, GCRA"),
    _throttled("token_bucket", "throttled-py, token bucket"),
    _pyrate("GCRA"),
)

FIELDS = (
    Field(
        "token bucket",
        (sluice("token_bucket"), *_BUCKETS),
        (sluice("token_bucket"), *map(_awaited, _BUCKETS)),
    ),
    Field(
        "fixed window",
        (
            sluice("fixed_window"),
            _limits("FixedWindowRateLimiter"),
            _throttled("fixed_window"),
            _pyrate("FixedWindow"),
        ),
        (
            sluice("fixed_window"),
            *_limits_on_redis("FixedWindowRateLimiter"),
            _awaited(_throttled("fixed_window")),
            _awaited(_pyrate("FixedWindow")),
        ),
    ),
    Field(
        "sliding window log",
        (
            sluice("sliding_window_log"),
            _limits("MovingWindowRateLimiter"),
            _pyrate("SlidingWindowLog"),
        ),
        (
            sluice("sliding_window_log"),
            *_limits_on_redis("MovingWindowRateLimiter"),
            _awaited(_pyrate("SlidingWindowLog")),
        ),
    ),
    Field(
        "sliding window counter",
        (
            sluice("sliding_window_counter"),
            _limits("SlidingWindowCounterRateLimiter"),
            _throttled("sliding_window"),
        ),
        (
            sluice("sliding_window_counter"),
            *_limits_on_redis("SlidingWindowCounterRateLimiter"),
            _awaited(_throttled("sliding_window")),
        ),
    ),
)

_DISTRIBUTIONS = ("limits", "throttled-py", "pyrate-limiter", "coredis", "redis")
_ASK = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"


def versions() -> dict[str, str]:
    """The versions of the rivals, and of the clients of Redis that they use."""
    found: dict[str, str] = {}
    if (VENV / "bin" / "python").exists():
        argv = [str(VENV / "bin" / "python"), "-c", _ASK, *_DISTRIBUTIONS]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        found = dict(zip(_DISTRIBUTIONS, said.stdout.split(), strict=False))
    return {
        # The server is called Redis too.
        "redis-py" if name == "redis" else name: found.get(name, "(not installed)")
        for name in _DISTRIBUTIONS
    }
