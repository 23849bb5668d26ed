"""How long a client waits while a crowd of others does the same: leaves, reads nothing, is cut off.

Run as `python -m bench.micro.stalls`. One client asks a route of its own every other millisecond.
Meanwhile 5,000 clients who wait in one queue reset their connections at the same moment; 400 ask
for a large body and read nothing of it; and the gateway is stopped while 5,000 wait. Latencies
count from the moment at which a request should have left, in milliseconds. On a machine that has
other things to do, run it by `chrt --fifo 1`, for which nothing of that matters.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from bench import proc
from bench.machine import Cpus, choose_cpus, pin_self
from bench.programs import PYTHON_PATH, program, python
from bench.servers import Server, accepts_tcp, free_port
from bench.template import nginx_user

WAITING: Final = 5_000
UNREAD: Final = 400
EVERY_S: Final = 0.002
LOOKED_AT_S: Final = 1.0
AFTERWARDS_S: Final = 0.2
SHUTDOWN_S: Final = 2
CONNECT_S: Final = 60.0

LARGE_BYTES: Final = 50_000_000

UPSTREAM: Final = """
{user}
daemon off;
pid nginx.pid;
error_log stderr warn;
worker_processes 1;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 '{{}}'; }}
        location = /large {{ root .; }}
    }}
}}
"""

CONFIG: Final = """
listen: 127.0.0.1:{port}
admin: off
log: {{ output: {log} }}
server: {{ shutdown_timeout: {shutdown}s }}
routes:
  /other: {{ respond: {{ status: 204 }} }}
  /large: {{ upstream: "http://127.0.0.1:{upstream}" }}
  /queue:
    upstream: "http://127.0.0.1:{upstream}"
    limit: 1/h burst 1 per all
    queue: {{ max: {waiting}, max_wait: 9000h }}
"""


class Probe:
    """One client who asks again and again, on a schedule, until it is stopped.

    Args:
        port: of the gateway.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_over = threading.Event()
        self._found: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._is_over.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> str:
        """What the requests had to wait that were due within a time, which is over."""
        while not self._found or self._found[-1][0] < end:
            time.sleep(EVERY_S)
        found = [ms for due, ms in self._found if begin <= due < end]
        p99 = quantiles(found, n=100)[98]
        count = f"{len(found):>6,} in {end - begin:.1f} s"
        return f"{count}: median {median(found):.1f}, 99th {p99:.1f}, highest {max(found):.1f}"

    def _ask(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as client:
            due = time.monotonic()
            while not self._is_over.is_set():
                time.sleep(max(due - time.monotonic(), 0))
                client.sendall(b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n")
                client.recv(65536)
                self._found.append((due, (time.monotonic() - due) * 1000))
                due += EVERY_S


def crowd(pipe: Connection, port: int, count: int, path: str) -> None:
    """Clients who ask once and read nothing; they reset their connections when told so."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    clients = []
    for _ in range(count):
        client = socket.socket()
        # The kernel must not take the body in the gateway's place.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(CONNECT_S)
        client.connect(("127.0.0.1", port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        clients.append(client)
    for client in clients:
        client.sendall(head)
    pipe.send("connected")
    pipe.recv()
    for client in clients:
        client.close()
    pipe.send("gone")


@contextmanager
def crowded(port: int, count: int, path: str) -> Iterator[Connection]:
    """A crowd in a process of its own; whatever it is sent makes it leave."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=crowd, args=(theirs, port, count, path))
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def upstream(cpus: Cpus, folder: Path) -> Server:
    """An nginx that has a large file, and a word for whoever asks for something else."""
    home = folder / "upstream"
    home.mkdir()
    with (home / "large").open("wb") as file:
        file.truncate(LARGE_BYTES)
    port = free_port()
    text = UPSTREAM.format(user=nginx_user(), port=port)
    (home / "nginx.conf").write_text(text, encoding="utf-8")
    # Like the crowds, it is not to take the processor from whoever is measured.
    argv = [
        program("chrt"),
        "--other",
        "0",
        program("nginx"),
        "-p",
        str(home),
        "-e",
        "error.log",
        "-c",
        "nginx.conf",
    ]
    return Server("upstream nginx", argv, port, cpus.load, home, is_ready=accepts_tcp)


def gateway(cpus: Cpus, folder: Path, upstream_port: int) -> Server:
    """A gateway with a route that queues, one with a large body and one for others."""
    home = Path(tempfile.mkdtemp(prefix="gateway-", dir=folder))
    port = free_port()
    config = home / "sluice.yaml"
    text = CONFIG.format(
        port=port,
        log=home / "access.log",
        upstream=upstream_port,
        waiting=WAITING,
        shutdown=SHUTDOWN_S,
    )
    config.write_text(text, encoding="utf-8")
    argv = [python(), "-m", "gateway", "run", str(config)]
    env = {"PYTHONPATH": PYTHON_PATH}
    return Server("Sluice", argv, port, cpus.proxy, home, env, is_ready=is_ready)


def is_ready(port: int) -> bool:
    """Whether the queue's one request has passed; all others wait."""
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /queue HTTP/1.1\r\nHost: x\r\n\r\n")
            return client.recv(16).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def show(title: str, figures: str) -> None:
    print(f"{title:<44}{figures}")


def leave(pipe: Connection) -> float:
    """Let a crowd leave; returns when it began to."""
    begin = time.monotonic()
    pipe.send("leave")
    pipe.recv()
    time.sleep(AFTERWARDS_S)
    return begin


def show_others(server: Server) -> None:
    """What another client has to wait."""
    with server:
        probe = Probe(server.port)
        try:
            begin = time.monotonic()
            time.sleep(LOOKED_AT_S)
            show("in quiet", probe.between(begin, time.monotonic()))
            with crowded(server.port, WAITING, "/queue") as pipe:
                pipe.recv()
                time.sleep(LOOKED_AT_S)
                begin = leave(pipe)
                figures = probe.between(begin, time.monotonic())
                show(f"while {WAITING:,} leave a queue", figures)
            begin = time.monotonic()
            with crowded(server.port, UNREAD, "/large") as pipe:
                pipe.recv()
                time.sleep(LOOKED_AT_S)
                figures = probe.between(begin, time.monotonic())
                show(f"while {UNREAD} ask for 50 MB and read nothing", figures)
                begin = leave(pipe)
                show("while they leave", probe.between(begin, time.monotonic()))
        finally:
            probe.stop()


def show_stop(server: Server) -> None:
    """How long it takes to end while thousands wait."""
    with server, crowded(server.port, WAITING, "/queue") as pipe:
        pipe.recv()
        session = server.session
        begin = time.monotonic()
        os.kill(session, signal.SIGTERM)
        while proc.members(session):
            time.sleep(0.005)
        seconds = time.monotonic() - begin
        show(f"stopped while {WAITING:,} wait", f"{seconds:.2f} s of {SHUTDOWN_S}")


def main() -> None:
    """Print all figures."""
    cpus = choose_cpus()
    pin_self(cpus.load)
    with tempfile.TemporaryDirectory() as name, upstream(cpus, Path(name)) as web:
        show_others(gateway(cpus, Path(name), web.port))
        show_stop(gateway(cpus, Path(name), web.port))


if __name__ == "__main__":
    main()
