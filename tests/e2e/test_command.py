"""The command line as its users meet it: real processes, real signals."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

import pytest
import requests
import yaml
from jsonschema import Draft202012Validator

from gateway.base.install_hint import install_hint
from gateway.systems.ratio.environment import DEFAULTS
from tests.certificates import Authority
from tests.conftest import StartGateway
from tests.e2e.raw import OK, RawClient, RawConnection, RawUpstream, RecordingUpstream, get
from tests.e2e.signs import wait_for_metric
from tests.processes import PYTHON_PATH, answers, free_pair, free_port

ROOT: Final = Path(__file__).parent.parent.parent
GOOD: Final = """\
listen: 127.0.0.1:{port}
admin: {{ listen: 127.0.0.1:{admin} }}
routes:
  /pay:
    upstream: http://127.0.0.1:{upstream}
    limit: 10/s burst 20 per header:X-API-Key
    queue: {{ max: 100, max_wait: 2s }}
"""
BAD: Final = """\
listen: 127.0.0.1:8080
store: reddis://localhost
routes:
  /pay:
    upstrem: http://127.0.0.1:9000
    limit: 10/s burts 20
  /pay/**:
    upstream: pay
    policies: [strict]
"""


def _sluice(
    *arguments: str | Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH, **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A configuration that can be used."""
    path = tmp_path / "good.yaml"
    path.write_text(GOOD.format(port=free_port(), admin=free_port(), upstream=free_port()))
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A configuration with five mistakes."""
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


def test_check_accepts_what_can_be_used(good: Path) -> None:
    """Exit status 0 and one line."""
    done = _sluice("check", good)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{good}: OK")
    assert done.stdout.count("\n") == 1


def test_check_tells_every_problem_at_once(bad: Path) -> None:
    """Exit status 1, and each mistake with file, line, column and what would do."""
    done = _sluice("check", bad)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for place in ("2:8", "5:5", "6:17", "8:15", "9:16"):
        assert f"{bad}:{place}: " in done.stderr, place
    for hint in ("redis", "upstream", "burst"):
        assert f"'{hint}" in done.stderr or f"did you mean {hint}" in done.stderr, hint


def test_check_explains_in_sentences(good: Path) -> None:
    """`--explain` says what a policy will do with a request."""
    done = _sluice("check", "--explain", good)
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    for words in ("a burst of 20", "100 ms", "2 s", "429", "X-API-Key"):
        assert words.lower() in text.lower(), words


def test_check_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A wrong path is a message and exit status 1, no traceback."""
    done = _sluice("check", tmp_path / "missing.yaml")
    assert done.returncode == 1
    assert "missing.yaml" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_schema_accepts_the_good_and_not_the_bad(good: Path, bad: Path) -> None:
    """`sluice schema` prints a JSON Schema that an editor can use."""
    schema = json.loads(_sluice("schema").stdout)
    validator = Draft202012Validator(schema)
    assert validator.is_valid(yaml.safe_load(good.read_text()))
    assert not validator.is_valid(yaml.safe_load(bad.read_text()))


def test_run_refuses_a_bad_configuration(bad: Path) -> None:
    """Nothing starts; all problems are told, as `check` tells them."""
    done = _sluice("run", "-c", bad)
    assert done.returncode == 1
    assert done.stderr == _sluice("check", bad).stderr


@pytest.mark.parametrize("busy", ["port", "admin"])
def test_run_with_a_busy_port_says_so(tmp_path: Path, busy: str) -> None:
    """Exit status 1, the address in the message, no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        ports = {"port": free_port(), "admin": free_port(), "upstream": free_port(), busy: number}
        path = tmp_path / "gateway.yaml"
        path.write_text(GOOD.format(**ports))
        done = _sluice("run", "-c", path)
    assert done.returncode == 1
    assert str(number) in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert '"traceback"' not in done.stdout


def test_healthcheck_tells_by_its_exit_status(start_gateway: StartGateway, tmp_path: Path) -> None:
    """0 while the gateway is ready, 1 when nobody answers; it asks where it is told to."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(f"routes:\n  /**: {{ upstream: {upstream.url} }}\n")
        admin = gateway.admin_url.removeprefix("http://")
        config = tmp_path / "asked.yaml"
        config.write_text(f"admin: {admin}\nroutes:\n  /**: {{ upstream: {upstream.url} }}\n")
        for where in (("--admin", admin), ("-c", config)):
            healthy = _sluice("healthcheck", *where)
            assert healthy.returncode == 0, healthy.stderr
        gateway.stop()
        dead = _sluice("healthcheck", "--admin", admin)
        assert dead.returncode == 1
        assert admin in dead.stderr
        assert "Traceback" not in dead.stderr


def _wait_until_refused(port: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return
        time.sleep(0.01)
    raise AssertionError("the gateway still listens")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_under_way_ends_before_the_gateway_does(
    start_gateway: StartGateway, number: signal.Signals
) -> None:
    """After the signal no one is let in, who is in gets his answer, and the exit status is 0."""
    asked: queue.SimpleQueue[None] = queue.SimpleQueue()
    may_answer = threading.Event()

    def serve(connection: RawConnection) -> None:
        while connection.read_head():
            asked.put(None)
            assert may_answer.wait(20)
            connection.send(OK)

    with RawUpstream(serve) as upstream:
        gateway = start_gateway(f"routes:\n  /**: {{ upstream: {upstream.url} }}\n")
        with RawClient(gateway.port) as slow, RawClient(gateway.port) as idle:
            slow.request()
            asked.get(timeout=20)
            gateway.server.signal(number)
            _wait_until_refused(gateway.port)
            assert idle.has_ended()
            readiness = requests.get(f"{gateway.admin_url}/readyz", timeout=10)
            assert (readiness.status_code, readiness.json()["phase"]) == (503, "draining")
            may_answer.set()
            answer = slow.read()
            assert (answer.status, answer.body) == (200, b"ok")
            assert answer.field("Connection").lower() == "close"
            assert slow.has_ended()
        assert gateway.server.process.wait(10) == 0


def _never_answer(connection: RawConnection) -> None:
    connection.wait_for_end()


def test_shutdown_does_not_wait_for_ever(start_gateway: StartGateway) -> None:
    """After `shutdown_timeout` the gateway ends, whoever is still being served."""
    with RawUpstream(_never_answer) as upstream:
        gateway = start_gateway(
            "server: { shutdown_timeout: 300ms }\n"
            f"routes:\n  /**: {{ upstream: {upstream.url} }}\n"
        )
        with RawClient(gateway.port) as client:
            client.request()
            assert wait_for_metric(gateway, "sluice_upstream_requests_total", 1)
            started = time.monotonic()
            gateway.server.signal(signal.SIGTERM)
            assert gateway.server.process.wait(10) == 0
            assert time.monotonic() - started < 5


def test_who_waits_for_a_turn_keeps_it_while_the_gateway_ends(
    start_gateway: StartGateway,
) -> None:
    """A request in a queue is a request under way."""
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"routes:\n  /**:\n    upstream: {upstream.url}\n"
            "    limit: 1/s burst 1 per all\n    queue: { max: 5, max_wait: 10s }\n"
        )
        assert get(gateway.port).status == 200
        with RawClient(gateway.port) as client:
            client.request()
            assert wait_for_metric(gateway, "sluice_policy_waiting", 1)
            gateway.server.signal(signal.SIGTERM)
            assert client.read().status == 200
        assert gateway.server.process.wait(10) == 0


def test_the_log_goes_on_after_rotation(start_gateway: StartGateway, tmp_path: Path) -> None:
    """After SIGUSR1 lines go to a new file of the same name; none is lost."""
    path = tmp_path / "access.log"
    rotated = tmp_path / "access.log.1"
    with RecordingUpstream() as upstream:
        gateway = start_gateway(
            f"log: {{ output: '{path}' }}\nroutes:\n  /**: {{ upstream: {upstream.url} }}\n"
        )
        get(gateway.port, "/before")
        path.rename(rotated)
        get(gateway.port, "/between")
        gateway.server.signal(signal.SIGUSR1)
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline, "no new file"
            time.sleep(0.01)
        get(gateway.port, "/after")
        gateway.stop()
    assert [_paths(rotated), _paths(path)] == [["/before", "/between"], ["/after"]]


def _paths(path: Path) -> list[str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["path"] for line in lines if "status" in line]


def test_secrets_come_from_files_and_the_environment(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """`${VAR}`, its default, and a file's content stand wherever a value may."""
    secret = tmp_path / "upstream"
    with RecordingUpstream() as upstream:
        secret.write_text(upstream.url + "\n")
        gateway = start_gateway(
            f"routes:\n  /**: {{ upstream: '${{file:{secret}}}', limit: '${{N:-2}}/h' }}\n"
            "  /more: { upstream: '${URL}', limit: '${MORE}/h' }\n",
            env={"URL": upstream.url, "MORE": "3"},
        )
        assert [get(gateway.port, "/x").status for _ in range(3)] == [200, 200, 429]
        assert [get(gateway.port, "/more").status for _ in range(4)] == [200] * 3 + [429]


def test_the_version_is_told() -> None:
    """`sluice --version` names program and version, `sluice version` all that is inside."""
    done = _sluice("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("sluice ")
    inside = _sluice("version")
    assert inside.returncode == 0
    assert inside.stdout.startswith(done.stdout)
    for name in ("Python", "aiohttp", "uvloop", "hiredis"):
        assert f"{name} " in inside.stdout


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        (["rum"], "did you mean sluice run?"),
        ([], "sluice --help"),
        (["run"], "sluice run sluice.yaml"),
        (["check"], "sluice check sluice.yaml"),
        (["check", "a.yaml", "-c", "b.yaml"], "sluice check --help"),
        (["healthcheck", "-c", "a.yaml", "--admin", "b"], "sluice healthcheck --help"),
        (["run", "-c", "a.yaml", "-c", "b.yaml"], "-c is given twice"),
        (["check", "-c", "a.yaml", "--config", "b.yaml"], "sluice run FOLDER"),
        (["healthcheck", "-c", "a.yaml", "-c", "b.yaml"], "-c is given twice"),
        (["check", "a.yaml", "b.yaml"], "put the files into one folder"),
        (["demo", "--listen", "8081"], "--listen: 8081 is a port without a host"),
        (["healthcheck", "--admin", "9901"], "--admin: 9901 is a port without a host"),
    ],
)
def test_misuse_is_answered_with_a_pointer(arguments: list[str], pointer: str) -> None:
    """Exit status 2, two lines, and where to look."""
    done = _sluice(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert pointer in done.stderr
    assert done.stderr.count("\n") == 2


def test_a_file_is_named_with_an_option_or_without(good: Path, bad: Path) -> None:
    """`check FILE` and `check -c FILE` are the same, and so are those of `run`."""
    assert _sluice("check", "-c", good).stdout == _sluice("check", good).stdout
    assert _sluice("run", bad).stderr == _sluice("run", "-c", bad).stderr != ""


def test_warnings_are_shown_as_problems_are(tmp_path: Path) -> None:
    """With place and line, before the gateway is found to be fine."""
    path = tmp_path / "odd.yaml"
    path.write_text("routes:\n  /**: { upstream: http://a:1 }\npolicies: { idle: 1/s }\n")
    done = _sluice("check", path)
    assert done.returncode == 0
    assert done.stderr.startswith(f"{path}:3:13: warning: policies.idle: no route uses")
    assert "^" in done.stderr
    explained = _sluice("check", "--explain", path).stdout
    assert "No route uses this policy" in explained


def test_a_first_answer_comes_without_any_options(good: Path) -> None:
    """`sluice run -c FILE` is all that it takes: requests to an absent upstream get a 502."""
    config = yaml.safe_load(good.read_text())
    port, admin = (
        int(address.rpartition(":")[2]) for address in (config["listen"], config["admin"]["listen"])
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "run", "-c", str(good)],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 30
        while not answers(admin, "/readyz"):
            assert time.monotonic() < deadline, "it never gets ready"
            time.sleep(0.02)
        assert get(port, "/pay").status == 502
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, b"")


@pytest.mark.parametrize("url", ["mysql://db/sluice", "rediss://db"])
def test_run_names_the_store_that_cannot_be_made(tmp_path: Path, url: str) -> None:
    """A file that the URL of the store names is missing: a sentence and 1, not a traceback."""
    config = tmp_path / "sluice.yaml"
    config.write_text(
        f"listen: 127.0.0.1:{free_port()}\nadmin: {{ listen: 127.0.0.1:{free_port()} }}\n"
        f"store: '{url}?ssl_ca_certs=/does/not/exist'\n"
        "routes:\n  /**: { upstream: http://127.0.0.1:9000 }\n"
    )
    done = _sluice("run", "-c", config)
    assert done.returncode == 1
    assert "store.url: the URL of the store cannot be used: an ssl_... option" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "place", "library", "extra"),
    [
        ("store: mysql://db/counts", "store.url: mysql://", "asyncmy", "mysql"),
        (
            "store: { migrate: { to: mysql://db/counts } }",
            "store.migrate.to: mysql://",
            "asyncmy",
            "mysql",
        ),
        ("listeners: [{ ratio: 1/s }]", "listeners[0]: ratio", "grpc", "grpc"),
        (
            "jwt: { keys: k.pem, algorithms: RS256 }\npolicies: { p: 1/s per jwt:sub }",
            "jwt: verifying tokens",
            "jwt",
            "jwt",
        ),
    ],
)
def test_a_library_that_is_missing_is_missed_before_the_start(
    tmp_path: Path, line: str, place: str, library: str, extra: str
) -> None:
    """`check` warns, since it may be there where the gateway runs; `run` ends with what to do."""
    config = tmp_path / "sluice.yaml"
    config.write_text(f"{line}\nroutes: {{ /**: {{ upstream: http://web, limit: 1/s }} }}\n")
    without = (
        f"import sys; sys.modules['{library}'] = None; "
        "import gateway.command.cli as c; sys.exit(c.main())"
    )
    told = {}
    for command in ("check", "run"):
        argv = [sys.executable, "-c", without, command, config]
        env = {**os.environ, "PYTHONPATH": PYTHON_PATH}
        told[command] = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=30, check=False
        )
    assert (told["check"].returncode, told["run"].returncode) == (0, 1)
    assert f"{config}: warning: {place} needs a library" in told["check"].stderr
    assert f"{config}: " in told["run"].stderr
    for each in told.values():
        assert f"needs a library that is not installed: {library}" in each.stderr
        assert install_hint(extra) in each.stderr


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_files_are_nobody_elses(tmp_path: Path, closed: str, workers: int) -> None:
    """It serves and ends in peace; no socket is taken for stdout."""
    port = free_port()
    config = tmp_path / "sluice.yaml"
    with RecordingUpstream() as upstream:
        config.write_text(
            f"listen: 127.0.0.1:{port}\nadmin: off\nserver: {{ workers: {workers} }}\n"
            f"log: {{ output: {tmp_path}/log }}\n"
            f"routes: {{ /**: {{ upstream: {upstream.url} }} }}\n"
        )
        words = f"exec {sys.executable} -m gateway run {config} {closed}"
        started = subprocess.Popen(
            ["sh", "-c", words], env={**os.environ, "PYTHONPATH": PYTHON_PATH}
        )
        try:
            deadline = time.monotonic() + 20
            while not answers(port):
                assert started.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert get(port, "/").status == 200
            started.send_signal(signal.SIGTERM)
            assert started.wait(20) == 0
        finally:
            started.kill()
            started.wait()
    log = (tmp_path / "log").read_text()
    assert "stopped" in log
    assert "SIG" not in log


def test_the_demo_says_how_it_is_started_elsewhere() -> None:
    """Its file is not the reader's to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = _sluice("demo", "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 1
    assert f"127.0.0.1:{port} is already in use" in done.stderr
    assert 'hint: make run ARGS="--listen ' in done.stderr


def test_of_two_ports_the_one_that_is_taken_is_named(tmp_path: Path) -> None:
    """Smockron's master takes the port above its own as well, which no file names."""
    first = free_pair()
    path = tmp_path / "sluice.yaml"
    listener = f"{{smockron: {{domains: {{default: 1/s}}}}, bind: 127.0.0.1:{first}}}"
    path.write_text(f"admin: off\nlisteners: [{listener}]\n")
    with socket.create_server(("127.0.0.1", first + 1)):
        done = _sluice("run", str(path))
    assert done.returncode == 1
    assert f"listeners[0].bind: 127.0.0.1:{first + 1} is already in use" in done.stderr
    assert f"sport = :{first + 1}" in done.stderr


def test_the_help_of_ratio_names_its_variables() -> None:
    """Each with what it is if it is not set."""
    text = " ".join(_sluice("ratio", "--help").stdout.split())
    for name, usual in DEFAULTS.items():
        assert f"{name} ({usual or 'all addresses'})" in text


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_gateway_on_one_host_is_told_of_the_admin_listener(
    tmp_path: Path, workers: int
) -> None:
    """What is wrong and both ways out, since nobody wrote the address that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        admin = taken.getsockname()[1]
        config = tmp_path / "second.yaml"
        config.write_text(
            f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:{admin}\nserver: {{ workers: {workers} }}\n"
            "routes: { /**: { respond: { status: 204 } } }\n"
        )
        done = _sluice("run", config)
    assert done.returncode == 1
    said, hint = done.stderr.splitlines()
    assert said == f"{config}: admin.listen: 127.0.0.1:{admin} is already in use"
    assert hint.startswith(
        f"  hint: set admin: off, or use another port: admin: 127.0.0.1:{admin + 1}; ss"
    )


def test_a_ready_made_listener_with_tls_says_how_to_try_it(tmp_path: Path) -> None:
    """Without certificates `check` fails, and what it says to do is enough."""
    config = tmp_path / "edge-tls.yaml"
    config.write_text((ROOT / "config" / "edge-tls.yaml").read_text())
    failed = _sluice("check", config)
    assert failed.returncode == 1
    hint = failed.stderr.partition("for a test: ")[2].splitlines()[0]
    subprocess.run(["sh", "-c", hint], check=True, capture_output=True, timeout=60)
    assert _sluice("check", config).returncode == 0


def test_diff_says_what_would_change(tmp_path: Path) -> None:
    """And ends as diff(1) does: 0 for nothing, 1 for something, 2 for what cannot be read."""
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("routes:\n  /a: { upstream: http://x:80, limit: 100/s }\n")
    new.write_text("routes:\n  /a: { upstream: http://x:80, limit: '${LIMIT:-50/s}' }\n")
    changed = _sluice("diff", old, new)
    assert (changed.returncode, changed.stderr) == (1, "")
    assert changed.stdout == "Route /a: limit 100/s becomes 50/s.\n"
    same = _sluice("diff", old, new, env={"LIMIT": "100/s"})
    assert (same.returncode, same.stdout) == (0, "Nothing changes.\n")
    new.write_text("routes:\n  /a: { upstrem: http://x:80 }\n")
    wrong = _sluice("diff", old, new)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert f"{new}:2:" in wrong.stderr
    assert str(old) not in wrong.stderr


def test_diff_lists_the_problems_of_both(tmp_path: Path) -> None:
    """Each with its own file, and those of one file once."""
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("routes:\n  /a: { upstrem: http://x:80 }\n")
    new.write_text("routes:\n  /a: { upstream: http://x:80, limit: 5 }\n")
    both = _sluice("diff", old, new)
    assert (both.returncode, both.stdout) == (2, "")
    assert f"{old}:2:9" in both.stderr
    assert f"{new}:2:39" in both.stderr
    assert _sluice("diff", old, old).stderr.count("unknown key") == 1
    missing = _sluice("diff", tmp_path / "none.yaml", new)
    assert missing.returncode == 2
    assert "none.yaml: cannot be read" in missing.stderr


def test_diff_compares_folders(tmp_path: Path) -> None:
    """A folder is the configuration of all of its files, and may say the same as one file."""
    one, folder = tmp_path / "one.yaml", tmp_path / "folder"
    folder.mkdir()
    one.write_text("policies: { p: 5/s }\nroutes:\n  /a: { respond: ok, policies: p }\n")
    (folder / "a.yaml").write_text("policies: { p: 5/s }\n")
    (folder / "b.yaml").write_text("routes:\n  /a: { respond: ok, policies: p }\n")
    assert _sluice("diff", one, folder).stdout == "Nothing changes.\n"
    (folder / "a.yaml").write_text("policies: { p: 6/s }\n")
    assert _sluice("diff", one, folder).stdout == (
        "Policy p: limit 5/s becomes 6/s. It applies to route /a.\n"
    )
    (folder / "b.yaml").write_text("routes:\n  /a: { respnd: ok }\n")
    assert f"{folder / 'b.yaml'}:2:" in _sluice("diff", one, folder).stderr


def test_diff_takes_relative_paths_as_they_are_written(
    tmp_path: Path, authority: Authority
) -> None:
    """The same path in another folder is no difference: the new file is to take its place."""
    pair = authority.issue("a.test")
    text = (
        "listen: {{ address: ':8443', tls: {{ cert: {}, key: key.pem }} }}\n"
        "routes: {{ /: {{ respond: ok }} }}\n"
    )
    files = []
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        for file, source in (("cert.pem", pair.cert), ("key.pem", pair.key)):
            (tmp_path / name / file).write_bytes(source.read_bytes())
        files.append(tmp_path / name / "sluice.yaml")
        files[-1].write_text(text.format("cert.pem"))
    assert _sluice("diff", *files).stdout == "Nothing changes.\n"
    files[1].write_text(text.format(tmp_path / "new" / "cert.pem"))
    changed = _sluice("diff", *files).stdout
    assert changed.startswith("Listener :8443: tls.cert")
    (tmp_path / "new" / "key.pem").unlink()
    assert "key.pem cannot be read" in _sluice("diff", *files).stderr


def test_diff_shows_no_secrets(tmp_path: Path) -> None:
    """Neither those of files nor credentials that are written out, old or new."""
    secret = tmp_path / "secret"
    texts = []
    for number in (1, 2):
        secret.with_suffix(f".{number}").write_text(f"from-file-{number}\n")
        text = (
            f"store: 'redis://:${{file:secret.{number}}}@redis:6379/0'\n"
            "routes:\n"
            "  /a:\n"
            "    upstream: http://x:80\n"
            f"    headers: {{ X-Auth-Token: written-{number} }}\n"
            "    request_headers:\n"
            "      set:\n"
            f"        Authorization: Bearer written-{number}\n"
            f"        X-A: ${{file:secret.{number}}}\n"
        )
        texts.append(tmp_path / f"{number}.yaml")
        texts[-1].write_text(text)
    found = _sluice("diff", *texts)
    assert found.returncode == 1
    assert "from-file" not in found.stdout
    assert "written" not in found.stdout
    assert found.stdout == (
        "Route /a: headers.x-auth-token has changed; "
        "request_headers.set.Authorization has changed; "
        "request_headers.set.X-A: ${file:secret.1} becomes ${file:secret.2}.\n"
        "store.url has changed.\n"
    )


def test_diff_of_one_is_misuse(tmp_path: Path) -> None:
    """Both are needed, and the message has an example."""
    wrong = _sluice("diff", tmp_path / "old.yaml")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == (
        "sluice: the following arguments are required: NEW\n"
        "  hint: for example: sluice diff old.yaml new.yaml\n"
    )
    assert "Exit status: 0" in _sluice("diff", "--help").stdout
