"""grpcio's engine for the tests: it stays for the whole run.

Its last server or channel takes a thread along when it is collected, and waits for it, wherever
the event loop happens to be. In a gateway that is at its end; in the tests it is after any of them.
"""

from __future__ import annotations

import grpc.aio


def keep() -> None:
    """Hold on to it."""
    grpc.aio.init_grpc_aio()
