"""What keeps a gateway from starting, in words that name the field and a way out.

The operating system says in a number why an address or a file cannot be had; here it becomes a
`StartError`. Nothing is tried here.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from socket import gaierror
from typing import Final

from gateway.base.errors import StartError
from gateway.config.values.address import MAX_PORT, Address, UnixAddress
from gateway.net.tls.files import TlsFileError

ADMIN: Final = "admin.listen"
"""The key of the admin listener's address."""


def cannot_listen(path: str, address: Address | UnixAddress, error: OSError) -> StartError:
    """An address cannot be listened on.

    Args:
        path: the key that names it.
        address: what was tried.
        error: what the system says.
    """
    if isinstance(address, UnixAddress):
        return _cannot_have_file(path, address, error)
    if isinstance(error, gaierror):
        return StartError(path, f"the host {address.host!r} is not known", "an address will do")
    number = error.errno
    if number == errno.EADDRINUSE:
        shown = f"ss -ltnp 'sport = :{address.port}' shows by whom"
        hint = f"{shown}; or choose another port"
        if path == ADMIN:
            # Few who start a second gateway know of this listener: it needs no configuration.
            other = Address(address.host, address.port + 1 if address.port < MAX_PORT else 9901)
            hint = f"admin: off, or another port: admin: {other}; {shown}"
        return StartError(path, f"{address} is in use already", hint)
    if number in {errno.EACCES, errno.EPERM}:
        hint = "a port from 1024 on; or let it: setcap, systemd's AmbientCapabilities, root"
        return StartError(path, f"this user may not listen on {address}", hint)
    if number == errno.EADDRNOTAVAIL:
        hint = f"for every address of this machine write :{address.port}"
        return StartError(path, f"{address} is not an address of this machine", hint)
    return StartError(path, f"{address} cannot be listened on: {error.strerror or error}")


def _cannot_have_file(path: str, address: UnixAddress, error: OSError) -> StartError:
    number = error.errno
    if number == errno.EADDRINUSE:
        # What gRPC listens on has a longer name there.
        hint = f"ss -lxp src '{address.path}*' shows by whom; or choose another path"
        return StartError(path, f"{address} is in use already", hint)
    folder = Path(address.path).parent
    if number == errno.ENOENT:
        message = f"the folder {folder} does not exist"
        return StartError(path, message, f"mkdir -p {folder}, or systemd's RuntimeDirectory")
    if number in {errno.EACCES, errno.EPERM}:
        message = f"this user may not make a socket in {folder}"
        return StartError(path, message, f"let user {os.geteuid()} write there")
    return StartError(path, f"{address} cannot be listened on: {error.strerror or error}")


def cannot_use(path: str, error: TlsFileError) -> StartError:
    """The file of a certificate cannot be used."""
    field = "client_ca" if error.field == "ca" and path.startswith("listen") else error.field
    return StartError(f"{path}.{field}", error.message, error.hint)


def cannot_log(output: str, error: OSError) -> StartError:
    """The file of the log cannot be opened."""
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
        hint = "stdout and stderr always are; a service manager or a shell may open others"
        return StartError(field, f"{output} is not open in this process", hint)
    if error.errno == errno.ENXIO and Path(output).is_socket():
        hint = "stdout, which systemd's journal and container runtimes read; or a file"
        return StartError(field, f"{output} is a socket, and logs go to files and pipes", hint)
    if error.errno == errno.ENXIO:
        return StartError(field, f"nobody reads the pipe {output}", "start its reader first")
    return StartError(field, f"{output} cannot be written: {error.strerror or error}")
