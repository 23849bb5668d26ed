"""A real server to put behind the gateway: nginx with files."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from tests.processes import ServerProcess, answers, free_port

FILE_SIZES: Final = {
    "empty": 0,
    "one": 1,
    "1k": 1 << 10,
    "16k": 16 << 10,
    "64k-less-1": (64 << 10) - 1,
    "64k": 64 << 10,
    "64k-and-1": (64 << 10) + 1,
    "1m": 1 << 20,
    "100m": 100 * 1000 * 1000,
}
"""The files that nginx serves: name and size in bytes."""

_NGINX: Final = """\
daemon off;
{user}
worker_processes 1;
pid {root}/nginx.pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    keepalive_requests 1000000;
    client_max_body_size 0;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        root {root}/files;
        location = /ready {{ return 200 "ready"; }}
        location /upload/ {{ dav_methods PUT; }}
    }}
}}
"""


@cache
def content(name: str) -> bytes:
    """The bytes of one of `FILE_SIZES`: no two parts alike, the same in every run."""
    return hashlib.shake_128(name.encode()).digest(FILE_SIZES[name])


@dataclass(frozen=True)
class Upstream:
    """A server that runs as a process of its own.

    Attributes:
        url: its address, without a slash at the end.
        folder: what it reads and writes; nginx keeps what was PUT to /upload/NAME in
            files/upload/NAME.
        server: the process.
    """

    url: str
    folder: Path
    server: ServerProcess


def start_nginx(folder: Path) -> Upstream:
    """Nginx serving `/NAME` for each of `FILE_SIZES`, and taking `PUT /upload/NAME`."""
    (folder / "files" / "upload").mkdir(parents=True)
    for name in FILE_SIZES:
        (folder / "files" / name).write_bytes(content(name))
    port = free_port()
    # Its workers would change to a user that may not enter the test's folder.
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(root=folder, port=port, user=user))
    server = ServerProcess(
        "nginx",
        ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(config)],
        folder,
        lambda: answers(port, "/ready"),
        {"PATH": f"{os.environ['PATH']}:/usr/sbin"},
    )
    return Upstream(f"http://127.0.0.1:{port}", folder, server)
