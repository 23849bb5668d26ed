"""Does a contestant do the job it is measured at? One that does not is reported, not measured.

It must forward the right body over few upstream connections, write its access log, and, where
it has a limiter, refuse a flood with 429.
"""

from __future__ import annotations

import http.client
import time
from collections import Counter

from bench.errors import BenchError
from bench.rivals.base import REFUSING, Contestant
from bench.stage import BODY, Stage

_REQUESTS = 60
_FEW_CONNECTIONS = 5
_LOG_SECONDS = 5.0


def verify(contestant: Contestant, stage: Stage) -> None:
    """Try a running contestant.

    Raises:
        BenchError: the first thing that it does wrong.
    """
    accepted, _ = stage.upstream_counts()
    statuses = _ask(contestant)
    opened = stage.upstream_counts()[0] - accepted
    name = contestant.rival.name
    if opened > _FEW_CONNECTIONS:
        raise BenchError(f"{name} opened {opened} upstream connections for {_REQUESTS} requests")
    if contestant.site.rate == REFUSING and contestant.rival.limits:
        # The readiness probes may have spent some of the burst, never all of it.
        if not statuses[429] or statuses[429] + statuses[200] != _REQUESTS:
            raise BenchError(f"{name} does not refuse with 429: {dict(statuses)}")
    elif statuses[200] != _REQUESTS:
        raise BenchError(f"{name} does not forward: {dict(statuses)}")
    _wait_for_log(contestant)


def _ask(contestant: Contestant) -> Counter[int]:
    statuses: Counter[int] = Counter()
    connection = http.client.HTTPConnection("127.0.0.1", contestant.site.port, timeout=10)
    try:
        for _ in range(_REQUESTS):
            connection.request("GET", "/v1/orders/42?expand=items")
            answer = connection.getresponse()
            body = answer.read()
            statuses[answer.status] += 1
            if answer.status == 200 and body != BODY:
                raise BenchError(f"{contestant.rival.name} changed the body to {body[:80]!r}")
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"{contestant.rival.name}: {error!r}") from error
    finally:
        connection.close()
    return statuses


def _wait_for_log(contestant: Contestant) -> None:
    deadline = time.monotonic() + _LOG_SECONDS
    while time.monotonic() < deadline:
        if contestant.log.exists() and contestant.log.stat().st_size > 0:
            return
        time.sleep(0.1)
    raise BenchError(f"{contestant.rival.name} wrote no access log")
