"""When requests are retried, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.config.models.gateway import RetryConfig
from gateway.config.models.retry import GRPC_STATUSES
from gateway.config.values.units import format_duration, format_size
from gateway.config.values.words import join

_FAILED = {
    "connect": "gets no connection",
    "reset": "loses its connection before the response begins",
    "timeout": "gets no first byte of the response in time",
}


def explain_retry(retry: RetryConfig | None) -> Iterator[str]:
    """Describe what is retried, and how often; nothing if nothing is."""
    if retry is None or retry.tries == 1:
        return
    failures = [_FAILED[one] for one in retry.when if isinstance(one, str) and one in _FAILED]
    statuses = [str(one) for one in retry.when if isinstance(one, int)]
    calls = [str(one).upper() for one in retry.when if one in GRPC_STATUSES]
    if statuses:
        failures.append(f"is answered with {join(statuses, 'or')}")
    size, tries = format_size(retry.max_body), f"at most {retry.tries} times in all"
    if failures:
        yield (
            f"A request that {join(failures, 'or')} is sent again, {tries}: "
            f"{_which(retry.methods)} with bodies up to {size}, others only if nothing was sent."
        )
    if calls:
        yield (
            f"A call of gRPC that ends with {join(calls, 'or')} is sent again, {tries}, if its "
            f"messages are at most {size}."
        )
    if retry.timeout is not None:
        duration = format_duration(retry.timeout)
        yield f"A try that may be followed by another has {duration} for the first byte."
    yield (
        f"Retries are at most {retry.budget} of the requests, or {retry.min_retries} in "
        "ten seconds if that is more."
    )


def _which(methods: str | Sequence[str]) -> str:
    if methods == "any":
        return "any"
    if methods == "idempotent":
        return "GET, HEAD, OPTIONS, PUT and DELETE"
    return join(list(methods), "or")
