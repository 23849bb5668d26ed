"""When requests are sent again, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.config.models.gateway import RetryConfig
from gateway.config.values.units import format_duration, format_size
from gateway.config.values.words import join

_FAILED = {
    "connect": "finds no connection",
    "reset": "loses it before an answer begins",
    "timeout": "has no first byte of one in time",
}


def explain_retry(retry: RetryConfig | None) -> Iterator[str]:
    """What is tried again, and how often; nothing where nothing is."""
    if retry is None or retry.tries == 1:
        return
    failures = [_FAILED[one] for one in retry.when if isinstance(one, str)]
    statuses = [str(one) for one in retry.when if isinstance(one, int)]
    if statuses:
        failures.append(f"is answered {join(statuses, 'or')}")
    size = format_size(retry.max_body)
    yield (
        f"A request that {join(failures, 'or')} is sent again, {retry.tries} times in all at most: "
        f"{_which(retry.methods)} with bodies up to {size}, others only while nothing was sent."
    )
    if retry.timeout is not None:
        duration = format_duration(retry.timeout)
        yield f"A try that may be followed by another has {duration} for the first byte."
    yield (
        f"Retries are {retry.budget} of the requests at most, or {retry.min_retries} in ten "
        "seconds if that is more."
    )


def _which(methods: str | Sequence[str]) -> str:
    if methods == "any":
        return "any"
    if methods == "idempotent":
        return "GET, HEAD, OPTIONS, PUT and DELETE"
    return join(list(methods), "or")
