"""Server processes are waited for, measured with their children, and always ended."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from bench import proc
from bench.errors import BenchError
from bench.machine import choose_cpus
from bench.servers import Server, accepts_tcp, cpu_shares, free_port

_CPU = choose_cpus().proxy
_HTTP = "import sys, http.server as h; h.test(h.SimpleHTTPRequestHandler, port=int(sys.argv[1]))"
# A parent whose child holds 64 MiB of touched memory and listens.
_WITH_CHILD = """
import os, socket, sys, time
if os.fork() == 0:
    held = b"x" * (64 << 20)
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(60)
"""
_SPINNING = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    pass
"""


def _server(directory: Path, program: str, *, tcp: bool = False) -> Server:
    port = free_port()
    argv = [sys.executable, "-c", program, str(port)]
    if tcp:
        return Server("test server", argv, port, _CPU, directory, is_ready=accepts_tcp)
    return Server("test server", argv, port, _CPU, directory)


def test_answers_when_started_and_is_gone_when_stopped(tmp_path: Path) -> None:
    """A started server answers; a stopped one has no process left."""
    with _server(tmp_path, _HTTP) as server:
        session = server.session
        assert os.sched_getaffinity(session) == {_CPU}
        assert proc.members(session) == [session]
    assert proc.members(session) == []
    assert not accepts_tcp(server.port)


def test_children_count_and_are_ended(tmp_path: Path) -> None:
    """Memory of a child counts as the server's, and stopping ends the child too."""
    with _server(tmp_path, _WITH_CHILD, tcp=True) as server:
        session = server.session
        assert len(proc.members(session)) == 2
        assert proc.resident_bytes(session) > 64 << 20
        proc.reset_peaks(session)
        assert proc.peak_resident_bytes(session) > 64 << 20
    assert proc.members(session) == []


def test_why_a_server_did_not_start(tmp_path: Path) -> None:
    """A program that ends immediately is reported with its last output."""
    with pytest.raises(BenchError, match=r"ended while starting: .*no such option"):
        _server(tmp_path, "raise SystemExit('no such option')").start()


def test_cpu_time_is_charged_to_who_spends_it(tmp_path: Path) -> None:
    """One that spins uses what others leave of its CPU; one that waits uses nothing."""
    with _server(tmp_path, _SPINNING, tcp=True) as server:
        busy = cpu_shares(server, lambda: time.sleep(0.5))
    with _server(tmp_path, _HTTP) as server:
        idle = cpu_shares(server, lambda: time.sleep(0.5))
    assert busy.own + busy.others > 0.6
    assert busy.own > 0.1
    assert idle.own < 0.1


def test_a_server_that_dies_under_load_is_noticed(tmp_path: Path) -> None:
    """A server that ended by itself is distinguished from a running one, with its exit status."""
    program = _WITH_CHILD.replace("time.sleep(60)", "listener.accept(); sys.exit('had enough')")
    with _server(tmp_path, program.replace("if os.fork() == 0:", "if True:"), tcp=True) as server:
        os.waitid(os.P_PID, server.session, os.WEXITED | os.WNOWAIT)
        with pytest.raises(BenchError, match="ended with 1 under load: had enough"):
            server.expect_alive()
