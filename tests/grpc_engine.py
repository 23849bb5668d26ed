"""grpcio's engine for the tests, which stays for the whole run, and where its servers are.

Its last server or channel takes a thread along when it is collected, and waits for it, wherever
the event loop happens to be. In a gateway that is at its end; in the tests it is after any of them.
"""

from __future__ import annotations

import grpc.aio

from gateway.config.values.address import Address


def port_of(address: object) -> int:
    """The port that a server has taken."""
    assert isinstance(address, Address)
    return address.port


def keep() -> None:
    """Hold on to it."""
    grpc.aio.init_grpc_aio()
