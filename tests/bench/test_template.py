"""Configuration files of rivals are filled completely or not at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.rivals.base import WITHIN, Rival, Site
from bench.rivals.sluice import EVENTUAL, LEASED, SLUICE, SLUICE_REDIS
from bench.template import render


def test_a_missing_value_is_an_error(tmp_path: Path) -> None:
    """A place without a value is named, and no half-filled file is left."""
    target = tmp_path / "haproxy.cfg"
    with pytest.raises(BenchError, match="no value for @rate@"):
        render("haproxy.cfg", target, port="1", upstream_port="2")
    assert not target.exists()


@pytest.mark.parametrize(
    ("rival", "store", "consistency"),
    [
        (SLUICE, "memory://", "strict"),
        (SLUICE_REDIS, "redis://127.0.0.1:3/0", "strict"),
        (LEASED, "redis://127.0.0.1:3/0", "leased"),
        (EVENTUAL, "redis://127.0.0.1:3/0", "eventual"),
    ],
)
def test_sluice_is_configured_for_the_job(
    tmp_path: Path, rival: Rival, store: str, consistency: str
) -> None:
    """Sluice gets the same limit, log and upstream as every rival."""
    argv = rival.prepare(Site(tmp_path, 1, 2, 3, WITHIN))
    written = Path(argv[-1]).read_text()
    assert f"store: {store}\n" in written
    assert "limit: 1000000/s burst 1000000 per ip" in written
    assert f"consistency: {consistency} " in written
    assert str(tmp_path / "access.log") in written
    assert not re.search(r"@[a-z_]+@", written)
