"""Errors that prevent a gateway from starting, with the key at fault and a fix.

The operating system reports a number; here it becomes a `StartError`. This module only words the
error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from pathlib import Path
from socket import gaierror
from typing import Final

from gateway.base.errors import StartError
from gateway.config.values.address import MAX_PORT, Address, UnixAddress
from gateway.net.tls.files import TlsFileError

ADMIN: Final = "admin.listen"
"""The key of the admin listener's address."""


def cannot_listen(
    path: str,
    address: Address | UnixAddress,
    error: OSError,
    ours: Collection[int] = (),
) -> StartError:
    """Return the error for an address that cannot be bound.

    Args:
        path: the key that names it.
        address: the address.
        error: the error of the system.
        ours: TCP ports that this gateway has already.
    """
    if isinstance(address, UnixAddress):
        return _cannot_have_file(path, address, error)
    if isinstance(error, gaierror):
        return StartError(path, f"the host {address.host!r} is not known", "use an address")
    number = error.errno
    if number == errno.EADDRINUSE:
        return _in_use(path, address, ours)
    if number in {errno.EACCES, errno.EPERM}:
        hint = (
            "use a port from 1024 on; or allow it with setcap, systemd's "
            "AmbientCapabilities, or root"
        )
        return StartError(path, f"this user may not listen on {address}", hint)
    if number == errno.EADDRNOTAVAIL:
        hint = f"for all addresses of this machine write :{address.port}"
        return StartError(path, f"{address} is not an address of this machine", hint)
    return StartError(path, f"cannot listen on {address}: {error.strerror or error}")


def _in_use(path: str, address: Address, ours: Collection[int]) -> StartError:
    if address.port in ours:
        message = (
            f"{address} overlaps with an address that this gateway listens on already, "
            "with a socket that cannot be shared"
        )
        hint = "restart the gateway; if a service manager opens that socket, set ReusePort=yes"
        return StartError(path, message, hint)
    shown = f"ss -ltnp 'sport = :{address.port}' shows the process"
    hint = f"{shown}; or choose another port"
    if path == ADMIN:
        # This listener needs no configuration, so few expect it in a second gateway.
        other = Address(address.host, address.port + 1 if address.port < MAX_PORT else 9901)
        hint = f"set admin: off, or use another port: admin: {other}; {shown}"
    return StartError(path, f"{address} is already in use", hint)


def too_many_workers(workers: int, error: OSError) -> StartError:
    """Return the error for a supervisor that cannot open files for its workers.

    Args:
        workers: how many there are; each has its own sockets.
        error: the error of the system.
    """
    hint = "raise the limit (ulimit -n, LimitNOFILE), or use fewer workers"
    message = f"no more files can be opened for {workers} workers: {error.strerror}"
    return StartError("server.workers", message, hint)


def _cannot_have_file(path: str, address: UnixAddress, error: OSError) -> StartError:
    number = error.errno
    if number == errno.EADDRINUSE:
        # gRPC uses a longer, temporary name there.
        hint = f"ss -lxp src '{address.path}*' shows the process; or choose another path"
        return StartError(path, f"{address} is already in use", hint)
    folder = Path(address.path).parent
    if number == errno.ENOENT:
        message = f"the folder {folder} does not exist"
        return StartError(path, message, f"use mkdir -p {folder}, or systemd's RuntimeDirectory")
    if number in {errno.EACCES, errno.EPERM}:
        message = f"this user may not create a socket in {folder}"
        return StartError(path, message, f"let user {os.geteuid()} write there")
    return StartError(path, f"cannot listen on {address}: {error.strerror or error}")


def cannot_change_workers() -> StartError:
    """Return the error for a reload that would need another number of processes."""
    message = "the number of workers cannot be changed while the gateway runs"
    hint = "restart the gateway, or upgrade it with SIGUSR2"
    return StartError("server.workers", message, hint)


def cannot_use(path: str, error: TlsFileError) -> StartError:
    """Return the error for a certificate file that cannot be used."""
    field = "client_ca" if error.field == "ca" and path.startswith("listen") else error.field
    return StartError(f"{path}.{field}", error.message, error.hint)


def cannot_log(output: str, error: OSError) -> StartError:
    """Return the error for a log file that cannot be opened."""
    field = "log.output"
    folder = Path(output).absolute().parent
    number = error.errno
    if number == errno.ENOENT:
        return StartError(field, f"the folder {folder} does not exist", f"mkdir -p {folder}")
    if number in {errno.EACCES, errno.EPERM}:
        hint = f"let user {os.geteuid()} write there, or log to stdout"
        return StartError(field, f"this user may not write {output}", hint)
    if number == errno.EISDIR:
        return StartError(field, f"{output} is a folder", f"name a file in it: {output}/sluice.log")
    return _cannot_log_to_stream(field, output, error)


def _cannot_log_to_stream(field: str, output: str, error: OSError) -> StartError:
    if error.errno == errno.EBADF:
        hint = (
            "use stdout or stderr; other descriptors must be opened by a service manager or a shell"
        )
        return StartError(field, f"{output} is not open in this process", hint)
    if error.errno == errno.ENXIO and Path(output).is_socket():
        hint = "use stdout, which systemd's journal and container runtimes read; or a file"
        return StartError(field, f"{output} is a socket; logs are written to files and pipes", hint)
    if error.errno == errno.ENXIO:
        return StartError(field, f"the pipe {output} has no reader", "start its reader first")
    return StartError(field, f"cannot write to {output}: {error.strerror or error}")
