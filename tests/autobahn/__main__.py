"""`python -m tests.autobahn [CASE...]`: Autobahn's WebSocket suite with and without Sluice.

Cases are numbers or patterns such as `1.*`; all of them, which takes ten minutes or more, if none
is named. The exit status is 0 if every case went the same way.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

from tests.autobahn import suite
from tests.processes import PYTHON_PATH, Gateway, ServerProcess, free_port


def say(line: str) -> None:
    """Tell whoever watches."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def main(cases: list[str]) -> int:
    """Run, compare and report."""
    python = suite.python2()
    suite.install(python)
    folder = Path(mkdtemp(prefix="sluice-autobahn-"))
    port = free_port()
    server = ServerProcess(
        "echo",
        [sys.executable, "-m", "tests.autobahn.echo", str(port)],
        folder,
        lambda: _listens(port),
        {"PYTHONPATH": PYTHON_PATH},
    )
    gateway = Gateway.start(f"routes:\n  /**: {{ upstream: http://127.0.0.1:{port} }}\n", folder)
    started = time.monotonic()
    ports = {"direct": port, "sluice": gateway.port}
    say(f"running; reports will be in {folder}")
    tries = [suite.start(python, agent, ports[agent], cases or ["*"], folder) for agent in ports]
    for each in tries:
        each.wait()
    gateway.stop()
    server.stop()
    direct, through = (suite.results(folder, agent) for agent in ports)
    for agent, results in (("direct", direct), ("sluice", through)):
        counts = Counter(str(result["behavior"]) for result in results.values())
        say(f"{agent}: {len(results)} cases: {dict(counts)}")
    differences = suite.compare(direct, through)
    for case, before, after in differences:
        say(f"case {case}: {before}; through Sluice: {after}")
    say(f"{len(differences)} differences, {time.monotonic() - started:.0f} s")
    return 1 if differences or not direct else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except suite.SuiteError as error:
        sys.exit(f"autobahn: {error}")
