"""Sockets that are about to be closed, as the kernel sees them."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

from gateway.net.closing import begin_no_more
from gateway.net.handover import Handover
from gateway.net.inherited import Announced


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


def _handed_over(one: socket.socket, *, is_ours: bool, has_predecessor: bool) -> Handover:
    announced = Announced(one.dup().detach(), "" if is_ours else "web", is_ours)
    return Handover([announced], has_predecessor=has_predecessor)


def _connects(port: int) -> bool:
    """Return whether a connection begins at once, or waits for whoever listens there next."""
    with socket.socket() as one:
        one.settimeout(0.3)
        try:
            one.connect(("127.0.0.1", port))
        except TimeoutError:
            return False
        return True


def test_a_predecessor_begins_connections_until_its_successor_serves() -> None:
    """Until then it may have to go on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        handover = _handed_over(listening, is_ours=True, has_predecessor=True)
        assert handover.drop_unwanted(()).closed
        assert _connects(port)
        handover.adopt()
        assert not _connects(port)


def test_a_child_of_a_successor_leaves_what_its_predecessor_has() -> None:
    """It closes its copies, and begins no fewer connections for it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        handover = _handed_over(listening, is_ours=True, has_predecessor=True)
        handover.drop_unwanted(())
        handover.forget_retiring()
        handover.adopt()
        assert _connects(listening.getsockname()[1])


def test_sockets_of_a_service_manager_stay_open() -> None:
    """Who connects there waits for a listener that a later reload adds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        handover = _handed_over(listening, is_ours=False, has_predecessor=False)
        assert handover.drop_unwanted(()).open
        handover.retire(listening)
        assert _connects(listening.getsockname()[1])
        handover.close()
