"""Gateways as processes on a real Redis: what passes stays within what is promised."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from gateway.limits.consistency_mode import Leased, leased_excess
from tests.limiter.local.laws import excess
from tests.limiter.local.worker import BUCKET, LIMITS, TERMS, read
from tests.servers import RedisServer

ROOT: Final = Path(__file__).parents[3]
SECONDS: Final = 3


class _Worker:
    def __init__(self, server: RedisServer, terms: str, seed: int, folder: Path) -> None:
        self.file = folder / f"passed-{seed}"
        words = ("-m", "tests.limiter.local.worker", server.url, terms, str(seed), str(SECONDS))
        self.process = subprocess.Popen(
            [sys.executable, *words, str(self.file)], cwd=ROOT, stdout=subprocess.PIPE
        )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def end(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(20)


def _run(server: RedisServer, terms: str, number: int, folder: Path, *, kill: bool) -> list[Path]:
    """Let so many work, and end the first of them in the middle if wished; what they noted."""
    workers = [_Worker(server, terms, seed, folder) for seed in range(number)]
    for worker in workers:
        worker.wait_until_ready()
    if kill:
        time.sleep(SECONDS / 2)
        workers[0].process.kill()
    statuses = [worker.end() for worker in workers]
    assert statuses == [-9 if kill else 0, *[0] * (number - 1)]
    return [worker.file for worker in workers]


def _passed(files: list[Path], number: int) -> tuple[list[int], int]:
    """When requests of one limit passed, and how late that was noted at the most."""
    records = [record for file in files for record in read(Path(f"{file}.{number}"))]
    return [known for _, known in records], max(known - asked for asked, known in records)


@pytest.mark.parametrize(("gateways", "kill"), [(2, False), (3, True)])
def test_leased_gateways_never_exceed_limit_and_bound(
    redis_server: RedisServer, tmp_path: Path, gateways: int, *, kill: bool
) -> None:
    """Random load on two or three, one of which may be killed; and hardly less than the limit."""
    terms = TERMS["leased"]
    assert isinstance(terms, Leased)
    files = _run(redis_server, "leased", gateways, tmp_path, kill=kill)
    for number, limit in enumerate(LIMITS):
        moments, blur_us = _passed(files, number)
        assert excess(limit, moments, blur_us) <= leased_excess(limit, terms, gateways)
        # It was the limit that bounded it, not the load.
        assert len(moments) >= 0.8 * limit.count * (max(moments) - min(moments)) / limit.period_us
    assert redis_server.keys_without_ttl() == []


def test_eventual_gateways_hear_of_each_other(redis_server: RedisServer, tmp_path: Path) -> None:
    """Never more than twice the limit of two; over time a bucket keeps nearly to its rate."""
    files = _run(redis_server, "eventual", 2, tmp_path, kill=False)
    for number, limit in enumerate(LIMITS):
        moments, blur_us = _passed(files, number)
        twice = replace(limit, count=2 * limit.count, burst=2 * limit.burst)
        assert excess(twice, moments, blur_us) <= 0
    moments, _ = _passed(files, 0)
    span_us = max(moments) - min(moments)
    allowed = BUCKET.burst + BUCKET.count * span_us / BUCKET.period_us
    # Twice the burst passes at first, which is a seventh of all that is allowed.
    assert 0.7 * allowed <= len(moments) <= 1.4 * allowed
