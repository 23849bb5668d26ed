"""The configurations in config/ work as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from gateway.config.checking.load import load
from gateway.config.explaining.explain import explain

FOLDER: Final = Path(__file__).parents[2] / "config"
FILES: Final = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_ready_made_configuration_is_valid(path: Path) -> None:
    """Without any variable set, and without a warning."""
    loaded = load(path, {})

    assert loaded.warnings == ()
    assert all(str(one).startswith("127.0.0.1:") for one in loaded.config.listen)
    assert len(explain(loaded.config)) > 10


def test_variables_move_a_ready_made_configuration() -> None:
    """The environment sets address, upstream and store."""
    environ = {"LISTEN": "0.0.0.0:80", "UPSTREAM": "http://app:8", "REDIS_URL": "redis://r/3"}

    config = load(FOLDER / "redis-shared.yaml", environ).config

    assert str(config.listen[0]) == "0.0.0.0:80"
    assert list(config.upstreams) == ["http://app:8"]
    assert config.store.url == "redis://r/3"


def test_they_are_all_there() -> None:
    """All that the documentation names."""
    names = (
        "api-keys edge-tls edge envoy-rls load-balancer plans queue ratio redis-shared sidecar"
        " smockron-gatekeeper smockron throttlex throttr websockets"
    )
    assert [path.stem for path in FILES] == names.split()
