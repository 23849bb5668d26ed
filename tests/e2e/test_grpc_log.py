"""What strangers may say to a listener for gRPC leaves no line of its library's."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.processes import Gateway, free_port


@pytest.mark.parametrize(
    ("verbosity", "is_told"), [({}, False), ({"GRPC_VERBOSITY": "info"}, True)]
)
def test_a_handshake_leaves_no_line(
    verbosity: dict[str, str], is_told: bool, tmp_path: Path
) -> None:
    """One that fails, and one for a name that no certificate has; or strangers could fill a disk.

    Who wants to know more may ask for it.
    """
    authority, port = Authority(tmp_path / "tls"), free_port()
    shown = authority.issue("a.test")
    config = (
        f"listeners: [{{ ratio: 1/s, bind: 127.0.0.1:{port}, "
        f"tls: {{ cert: {shown.cert}, key: {shown.key} }} }}]\n"
        "routes: { /**: { respond: { status: 204 } } }\n"
    )
    context = authority.client_context()
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    gateway = Gateway.start(config, tmp_path, verbosity)
    try:
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with suppress(ConnectionResetError):
                assert not stranger.recv(1)
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="b.test") as client,
        ):
            assert client.recv(1)
    finally:
        gateway.stop()
    assert ("Handshake failed" in gateway.server.stderr) is is_told
    assert ("No match found for server name" in gateway.server.stderr) is is_told
    assert is_told or not gateway.server.stderr
