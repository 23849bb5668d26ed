"""The configurations of the scenario of richer policies: what they say, and that they work."""

from __future__ import annotations

from pathlib import Path

from bench.rivals.base import WITHIN, Site
from bench.rivals.sluice import FIVE_KEYS, KEYS
from bench.template import render
from gateway.config.checking.load import load
from gateway.wiring.inspection import inspection


def test_five_keys_tiers_and_two_limits(tmp_path: Path) -> None:
    """As the scenario promises; the load's own key has a tier."""
    site = Site(tmp_path, 8080, 9000, 6379, WITHIN)
    FIVE_KEYS.prepare(site)
    config = load(tmp_path / "sluice.yaml", {}, inspect=inspection(is_start=False)).config
    (policy,) = config.policies.values()
    assert sum(len(line.per) for line in policy.limits) == 5
    assert len(policy.limits) == len(policy.tiers) == 2
    lines = (tmp_path / "keys.csv").read_text().splitlines()
    assert len(lines) == KEYS
    assert lines[-1].endswith(",pro")


def test_a_deny_list(tmp_path: Path) -> None:
    """It is read from the file beside the configuration."""
    path = tmp_path / "sluice.yaml"
    (tmp_path / "blocked.txt").write_text("192.0.2.0/24\n")
    values = {"port": "8080", "upstream_port": "9000", "rate": "1", "burst": "1"}
    render("sluice_denied.yaml", path, log=str(tmp_path / "log"), **values)
    config = load(path, {}, inspect=inspection(is_start=False)).config
    assert config.deny == ("blocked",)
