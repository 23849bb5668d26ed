"""Listeners for other systems' clients, which the first of several workers has."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc

from tests.conftest import StartGateway
from tests.e2e.signs import log_lines
from tests.processes import Gateway, free_pair, free_port
from tests.ratio import OK, PATH, request
from tests.systems.throttr.running import INSERT, TAKE
from tests.workers.family import (
    children,
    is_there,
    wait_until,
    wait_until_ready,
    workers_of,
)

Place = tuple[str, int] | str
LISTENERS: Final = """
server: {{ workers: 2, shutdown_delay: 60s }}
listeners:
  - {{ bind: "127.0.0.1:{ratio}", ratio: 1000/m }}
  - {{ bind: "unix:{folder}/ratio.sock", mode: 0660, ratio: 1000/m }}
  - {{ bind: "127.0.0.1:{throttr}", throttr: v5 }}
  - {{ bind: "unix:{folder}/throttr.sock", mode: 0660, throttr: v5 }}
  - {{ bind: "127.0.0.1:{smockron}", smockron: {{ domains: {{ default: 1/s }} }} }}
"""


class _Places:
    """Where all kinds of them are.

    Attributes:
        config: which says so.
        places: each address.
    """

    def __init__(self, folder: Path) -> None:
        self.ratio, self.throttr, self.smockron = free_port(), free_port(), free_pair()
        ports = {"ratio": self.ratio, "throttr": self.throttr, "smockron": self.smockron}
        self.config = LISTENERS.format(folder=folder, **ports)
        names: list[Place] = [f"{folder}/ratio.sock", f"{folder}/throttr.sock"]
        all_ports = (*ports.values(), self.smockron + 1)
        self.places = [*names, *(("127.0.0.1", port) for port in all_ports)]
        self.of_ratio = (f"unix:{folder}/ratio.sock", f"127.0.0.1:{self.ratio}")
        self.of_throttr: tuple[Place, ...] = (names[1], ("127.0.0.1", self.throttr))


def _connected(place: Place) -> socket.socket:
    one = socket.socket(socket.AF_UNIX if isinstance(place, str) else socket.AF_INET)
    one.settimeout(10)
    try:
        one.connect(place)
    except OSError:
        one.close()
        raise
    return one


@contextmanager
def _clients_come(places: list[Place]) -> Iterator[list[str]]:
    """Clients connect again and again; those whom nobody took are told of."""
    refused: list[str] = []
    is_over = threading.Event()

    def connect() -> None:
        while not is_over.wait(0.002):
            for place in places:
                try:
                    _connected(place).close()
                except OSError as error:
                    refused.append(f"{place}: {error}")

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        yield refused
    finally:
        is_over.set()
        thread.join()


def _are_answered(places: _Places) -> None:
    for place in places.of_throttr:
        with _connected(place) as client:
            client.sendall(INSERT + TAKE)
            # Each listener has a book of its own.
            assert client.recv(2, socket.MSG_WAITALL)[1:] == b"\x01"
    for where in places.of_ratio:
        with grpc.insecure_channel(where) as channel:
            ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
            assert ask(request(), timeout=10, wait_for_ready=True) == OK


def _messages(gateway: Gateway) -> list[str]:
    return [line["message"] for line in log_lines(gateway) if "message" in line]


def test_a_first_worker_that_is_told_to_end_serves_until_another_does(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """No connection is refused, and no address is in use; it then ends without a delay."""
    places = _Places(tmp_path)
    gateway = start_gateway(places.config)
    _are_answered(places)
    with _clients_come(places.places) as refused:
        family = set(children(gateway.server.pid))
        first = workers_of(gateway)[0]
        for _ in range(2):
            os.kill(first, signal.SIGTERM)
            wait_until(lambda first=first: not is_there(first), "it does not end")  # type: ignore[misc]
            wait_until_ready(gateway, 3)
            (first,) = set(children(gateway.server.pid)) - family
            family.add(first)
    assert refused == []
    _are_answered(places)
    assert not [line for line in _messages(gateway) if "in use" in line or "status 1" in line]
    # It would wait for its balancers now.
    gateway.server.signal(signal.SIGKILL)
    gateway.server.process.wait(20)


def test_a_first_worker_that_is_killed_is_replaced(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """The files of its Unix sockets, too; and no address is reported as in use."""
    places = _Places(tmp_path)
    gateway = start_gateway(places.config)
    os.kill(workers_of(gateway)[0], signal.SIGKILL)
    wait_until(
        lambda: any("has been restarted" in line for line in _messages(gateway)), "it is not"
    )
    wait_until_ready(gateway, 3)
    _are_answered(places)
    assert not [line for line in _messages(gateway) if "in use" in line]
    gateway.server.signal(signal.SIGKILL)
    gateway.server.process.wait(20)
