"""Who is slow slows the other side down: what is under way stays small, and nothing is lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from tests.conftest import StartGateway
from tests.e2e.memory import MIB, peak_mib, reset_peak
from tests.e2e.raw import OK, RawClient, RawConnection, RawUpstream

SIZE: Final = 256 * MIB
UNDER_WAY: Final = 64 * MIB
"""More than the buffers of gateway and kernel hold, on both sides; far less than `SIZE`."""


class _Flow:
    """How many bytes one side has got rid of."""

    def __init__(self) -> None:
        self.sent = 0

    def send(self, send: Callable[[bytes], None]) -> None:
        """Send `SIZE` bytes, each block as soon as the one before is taken."""
        block = bytes(MIB // 4)
        for _ in range(SIZE // len(block)):
            send(block)
            self.sent += len(block)

    def wait_for_standstill(self) -> int:
        """Return what was sent when no more is taken."""
        deadline = time.monotonic() + 20
        seen = 0
        while True:
            time.sleep(0.5)
            if seen and self.sent == seen:
                return seen
            seen = self.sent
            assert time.monotonic() < deadline, "it never stands still"


def _read_all(sock: socket.socket) -> int:
    size = 0
    buffer = bytearray(MIB)
    while count := sock.recv_into(buffer):
        size += count
    return size


def test_a_client_that_does_not_read_holds_the_upstream_back(start_gateway: StartGateway) -> None:
    """The gateway takes in no more than fits its buffers; later the client gets it all."""
    flow = _Flow()

    def serve(connection: RawConnection) -> None:
        connection.read_head()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        flow.send(connection.send)

    with RawUpstream(serve) as upstream:
        gateway = start_gateway(f"routes:\n  /**: {{ upstream: {upstream.url} }}\n")
        reset_peak(gateway.server.pid)
        before = peak_mib(gateway.server.pid)
        with RawClient(gateway.port) as client:
            client.request("/", "Connection: close")
            assert flow.wait_for_standstill() < UNDER_WAY
            assert _read_all(client.sock) > SIZE
        assert flow.sent == SIZE
        assert peak_mib(gateway.server.pid) - before < 20


def test_an_upstream_that_does_not_read_holds_the_client_back(start_gateway: StartGateway) -> None:
    """The gateway takes in no more than fits its buffers; later the upstream gets it all."""
    flow = _Flow()
    may_read = threading.Event()

    def serve(connection: RawConnection) -> None:
        head = connection.read_head()
        assert may_read.wait(30)
        assert b"Content-Length: %d" % SIZE in head
        if connection.discard_body(SIZE) == SIZE:
            connection.send(OK)

    with RawUpstream(serve) as upstream:
        gateway = start_gateway(f"routes:\n  /**: {{ upstream: {upstream.url} }}\n")
        reset_peak(gateway.server.pid)
        before = peak_mib(gateway.server.pid)
        with RawClient(gateway.port) as client:
            client.request("/", f"Content-Length: {SIZE}", method="PUT")
            sender = threading.Thread(target=flow.send, args=(client.send,), daemon=True)
            sender.start()
            assert flow.wait_for_standstill() < UNDER_WAY
            may_read.set()
            assert client.read("PUT").status == 200
            sender.join(20)
        assert flow.sent == SIZE
        assert peak_mib(gateway.server.pid) - before < 20


def test_a_websocket_holds_back_whoever_is_not_read(start_gateway: StartGateway) -> None:
    """In a tunnel too, either way: the gateway takes in no more than fits its buffers."""
    flow = _Flow()
    goes_up = threading.Event()
    may_read = threading.Event()

    def serve(connection: RawConnection) -> None:
        connection.read_head()
        connection.send(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        if goes_up.is_set():
            assert may_read.wait(30)
            if connection.discard_body(SIZE) == SIZE:
                connection.send(b"all")
        else:
            flow.send(connection.send)

    fields = ("Connection: Upgrade", "Upgrade: websocket")
    with RawUpstream(serve) as upstream:
        gateway = start_gateway(f"routes:\n  /**: {{ upstream: {upstream.url} }}\n")
        reset_peak(gateway.server.pid)
        before = peak_mib(gateway.server.pid)
        with RawClient(gateway.port) as client:
            client.request("/", *fields)
            assert flow.wait_for_standstill() < UNDER_WAY
            assert _read_all(client.sock) > SIZE
        assert flow.sent == SIZE
        flow.sent = 0
        goes_up.set()
        with RawClient(gateway.port) as client:
            assert client.get("/", *fields).status == 101
            sender = threading.Thread(target=flow.send, args=(client.send,), daemon=True)
            sender.start()
            assert flow.wait_for_standstill() < UNDER_WAY
            may_read.set()
            assert client.sock.recv(3, socket.MSG_WAITALL) == b"all"
            sender.join(20)
        assert flow.sent == SIZE
        assert peak_mib(gateway.server.pid) - before < 20
