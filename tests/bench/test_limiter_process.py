"""Libraries are measured in processes of their own, which limit, and whose failures are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.limiter.adapters.one_by_one import table
from bench.limiter.contestants import FIELDS, OURS, Field, sluice
from bench.limiter.job import Job, Order, Quota, Sample
from bench.limiter.match import PASSING, REFUSED, Record
from bench.limiter.process import Process
from bench.machine import choose_cpus
from bench.scenarios.mariadb import ONE_BY_ONE
from tests.mariadb import MariaDB

CPU = choose_cpus().proxy
KEYS = 10
TWO = Quota("two", 2, 86_400)
FIVE = Quota("five", 5, 86_400)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.algorithm)
def test_ours_takes_part_with_every_algorithm(field: Field, tmp_path: Path) -> None:
    """Each quota holds every key by itself, and what an order spent is spent for the next."""
    ours = field.in_memory[0]
    assert ours.name == field.on_redis[0].name == OURS
    job = Job(ours.module, ours.kind, "memory://", KEYS, 1, (TWO, FIVE))
    with Process(ours, job, CPU, tmp_path / "errors") as process:
        passed = [
            process.obey(Order(quota.name, passes=3)).passed for quota in (TWO, FIVE, TWO, FIVE)
        ]
    assert passed == [2 * KEYS, 3 * KEYS, 0, 2 * KEYS]


def test_one_decision_per_transaction(tmp_path: Path) -> None:
    """The rival on MariaDB writes every decision into the row of its key."""
    server = MariaDB(tmp_path / "mariadb")
    server.start()
    try:
        server.sql(table(KEYS))
        job = Job(ONE_BY_ONE.module, ONE_BY_ONE.kind, server.url, KEYS, 4, (TWO,))
        with Process(ONE_BY_ONE, job, CPU, tmp_path / "errors") as process:
            sample = process.obey(Order(TWO.name, passes=3))
        left = server.sql("SELECT DISTINCT tokens FROM one_by_one")
        count = server.sql("SELECT COUNT(*) FROM one_by_one")
    finally:
        server.stop()
    assert (sample.decisions, sample.passed) == (3 * KEYS, 3 * KEYS)
    assert (left, count) == ([("999999997",)], [(str(KEYS),)])


def test_a_library_that_is_missing(tmp_path: Path) -> None:
    """The error of a process that does not start is its own."""
    library = replace(sluice("token_bucket"), module="nowhere")
    job = Job(library.module, library.kind, "memory://", KEYS, 1, (TWO,))
    with (
        pytest.raises(BenchError, match=r"ended: .*No module named .*nowhere"),
        Process(library, job, CPU, tmp_path / "errors"),
    ):
        pass


def test_a_store_that_is_away(tmp_path: Path) -> None:
    """Decisions that no store has made are an error, never a figure."""
    ours = sluice("token_bucket")
    job = Job(ours.module, ours.kind, "redis://127.0.0.1:1/0", KEYS, 1, (TWO,))
    with (
        Process(ours, job, CPU, tmp_path / "errors") as process,
        pytest.raises(BenchError, match=r"Sluice ended: .*the store failed"),
    ):
        process.obey(Order(TWO.name, passes=1))


@pytest.mark.parametrize(
    ("quota", "passed", "complaint"),
    [
        (PASSING, 100, ""),
        (PASSING, 99, "1 were refused within the limit"),
        (REFUSED, 0, ""),
        (REFUSED, 50, ""),
        (REFUSED, 51, "only 49% were refused over the limit"),
    ],
)
def test_who_does_not_limit_is_not_measured(quota: Quota, passed: int, complaint: str) -> None:
    """A library that refuses within a limit, or passes what is over it, has no figure."""
    record = Record()
    sample = Sample(100, passed, 1.0, 1.0)
    if complaint:
        with pytest.raises(BenchError, match=complaint):
            record.add(Order(quota.name), sample)
        assert record.samples == {}
    else:
        record.add(Order(quota.name), sample)
        assert record.samples == {quota.name: [sample]}
