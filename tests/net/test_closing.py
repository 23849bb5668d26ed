"""Sockets that are about to be closed, as the kernel sees them."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

from gateway.net.closing import begin_no_more


def _connecting(port: int) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    with suppress(BlockingIOError):
        one.connect(("127.0.0.1", port))
    return one


def test_who_comes_while_a_socket_is_closed_is_not_reset() -> None:
    """Who was there is served, and who comes reaches what listens there next."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as early:
        begin_no_more(listening)
        late = _connecting(port)
        accepted, _ = listening.accept()
        with accepted, listening:
            early.sendall(b"hello")
            assert accepted.recv(5) == b"hello"
            accepted.sendall(b"there")
            assert early.recv(5) == b"there"
            if sys.platform == "linux":
                listening.setblocking(False)
                with suppress(BlockingIOError):
                    listening.accept()
                    raise AssertionError("a connection began")
        # It tries again after a second, which is TCP's own time for a packet that is lost.
        with socket.socket() as wide, late:
            wide.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            wide.bind(("", port))
            wide.listen()
            wide.settimeout(20)
            after, address = wide.accept()
            with after:
                assert address == late.getsockname()


def test_other_sockets_are_left_alone() -> None:
    """Sockets of files have no segments."""
    one, other = socket.socketpair()
    with one, other:
        begin_no_more(one)
        other.sendall(b"x")
        assert one.recv(1) == b"x"
