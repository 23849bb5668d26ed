"""Tells a service manager such as systemd how this process is, as in sd_notify(3).

Each message is a datagram to the socket that the service manager names in `NOTIFY_SOCKET`.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from gateway.base.clock import monotonic_us

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
"""The variable that has the address of its socket."""
SEND_S: Final = 1.0
"""How long a message may wait for a service manager that does not read."""


class ServiceManager:
    """The service manager of this process.

    Args:
        address: the path of its socket, or `@` and an abstract name; empty for none.
    """

    def __init__(self, address: str = "") -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address

    def started(self) -> None:
        """Report that the gateway serves, also after a reload, or an upgrade that failed."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Report that a reload or an upgrade has begun; `started` or `replaced_by` must follow."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={monotonic_us()}")

    def replaced_by(self, pid: int) -> None:
        """Report that another process serves, and is the one to watch and to signal from now on."""
        self._send(f"MAINPID={pid}\nREADY=1")

    def stopping(self) -> None:
        """Report that the gateway shuts down."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # A service manager that is gone must not stop the gateway.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.settimeout(SEND_S)
            one.sendto(message.encode(), self._address)


NO_MANAGER: Final = ServiceManager()
"""In place of a service manager: everything that is sent to it is dropped."""
