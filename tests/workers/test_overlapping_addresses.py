"""An address that overlaps with one that the gateway has already: the same port of other hosts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import StartGateway
from tests.e2e.raw import RawClient
from tests.processes import answers, free_port
from tests.workers.family import wait_until
from tests.workers.succession import Load, Upgradable, upgradable

CONFIG: Final = (
    "log: {{ access: off }}\nserver: {{ workers: {workers} }}\n"
    "listeners: [{{ throttr: v5, bind: '127.0.0.1:{port}' }}]\n"
    "routes: {{ /**: {{ respond: {{ status: 200 }} }} }}\n"
)
ELSEWHERE: Final = "127.0.0.2"


def _reload(running: Upgradable) -> None:
    running.reload()


def _upgrade(running: Upgradable) -> None:
    running.wait_for_end(running.upgrade())


def _is_open(port: int, host: str = ELSEWHERE) -> bool:
    try:
        socket.create_connection((host, port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("change", [_reload, _upgrade])
def test_a_listener_moves_to_all_addresses_and_back(
    start_gateway: StartGateway, tmp_path: Path, workers: int, change: object
) -> None:
    """Of every kind, with its port: no request fails, and no connection is refused."""
    assert callable(change)
    config = CONFIG.format(workers=workers, port=(throttr := free_port()))
    with upgradable(start_gateway, config, tmp_path) as running:
        port = running.gateway.port
        admin = int(running.gateway.admin_url.rpartition(":")[2])
        ports = (port, admin, throttr)
        assert not any(map(_is_open, ports))
        with Load(lambda: RawClient(port)) as load:
            for is_everywhere in (True, False):
                load.wait_for_more()
                for each in ports:
                    narrow, wide = f"127.0.0.1:{each}", f"0.0.0.0:{each}"
                    running.change(*((narrow, wide) if is_everywhere else (wide, narrow)))
                change(running)
                for each in ports:
                    wait_until(
                        lambda each=each, wanted=is_everywhere: (  # type: ignore[misc]
                            _is_open(each) == wanted
                        ),
                        "it listens where it did",
                    )
                load.wait_for_more()
                assert answers(admin, "/readyz")
                assert _is_open(throttr, "127.0.0.1")
        assert load.failures == []
