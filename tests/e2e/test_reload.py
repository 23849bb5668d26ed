"""A configuration that changes while its gateway runs: each way to reload, and where it shows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from tests.certificates import Authority
from tests.configmap import ConfigMapVolume
from tests.conftest import StartGateway
from tests.e2e.raw import RawClient, RawConnection, RawUpstream, get
from tests.e2e.signs import PATIENCE_S, log_lines, metric, wait_for_metric
from tests.e2e.test_tls import secure
from tests.processes import PYTHON_PATH, Gateway, ServerProcess, answers, free_port
from tests.upstreams import Upstream
from tests.workers.family import limiter_of, wait_until_ready

ANSWER: Final = """\
server: {{ {server} }}
routes:
  /**: {{ respond: {{ status: 200, body: '{body}' }}, limit: 3/h burst 3 per all }}
"""
JSON: Final = {"Content-Type": "application/json"}
BAD: Final = (
    "server: { workers: 1 }\nroutes:\n  /**: { respond: { status: 200 }, limit: 10/s burts 20 }\n"
)
KEPT: Final = "stays in force"


def _text(body: str, server: str = "workers: 1") -> str:
    return ANSWER.format(body=body, server=server)


class _Configured:
    """A gateway, and the file that it was started with."""

    def __init__(self, start: StartGateway, folder: Path, text: str, workers: int) -> None:
        self.workers = workers
        self.gateway: Gateway = start(self.counted(text))
        self.file = folder / f"gateway-{self.gateway.port}.yaml"
        self.first = "".join(self.file.read_text().splitlines(keepends=True)[:2])

    def counted(self, text: str) -> str:
        """The text with the number of workers of this gateway."""
        return text.replace("workers: 1", f"workers: {self.workers}")

    def write(self, text: str) -> None:
        """Change the file, as an editor does: another one is renamed over it."""
        other = self.file.with_suffix(".new")
        other.write_text(self.first + self.counted(text))
        other.rename(self.file)

    def body(self) -> str:
        """What the gateway answers with."""
        return get(self.gateway.port).body.decode()

    def post(self, **options: Any) -> requests.Response:
        """`POST /reload`."""
        options.setdefault("headers", JSON)
        return requests.post(f"{self.gateway.admin_url}/reload", timeout=30, **options)

    def config(self) -> dict[str, str]:
        """What `/readyz` says of the configuration; the gateway is ready."""
        answer = requests.get(f"{self.gateway.admin_url}/readyz", timeout=10)
        assert answer.status_code == 200
        found: dict[str, str] = answer.json()["config"]
        return found

    def results(self) -> dict[str, float]:
        """How many reloads had which result."""
        name = "sluice_config_reloads_total"
        return {one: metric(self.gateway, name, result=one) for one in ("applied", "failed")}


Configure = Callable[[str], _Configured]


@pytest.fixture(params=[1, 2], ids=["one", "two"])
def configure(
    request: pytest.FixtureRequest, start_gateway: StartGateway, tmp_path: Path
) -> Configure:
    """Starts a gateway, of one process or of several, with a file that may change."""
    return lambda text: _Configured(start_gateway, tmp_path, text, request.param)


def _messages(gateway: Gateway, words: str) -> list[str]:
    lines = [line["message"] for line in log_lines(gateway) if "message" in line]
    return [line for line in lines if words in line]


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def _sluice(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# The signal.


def test_sighup_applies_what_the_file_says(configure: Configure) -> None:
    """Connections stay open, the next request is answered anew, and the log says what changed."""
    one = configure(_text("one"))
    with RawClient(one.gateway.port) as client:
        assert client.get("/").body == b"one"
        one.write(_text("two") + "  /more: { respond: { status: 204 } }\n")
        one.gateway.server.signal(signal.SIGHUP)
        _until(lambda: bool(_messages(one.gateway, "reloaded")), "nothing is said")
        assert client.get("/").body == b"two"
        assert client.get("/more").status == 204
        # The limit counts on: of three requests, two are gone.
        assert client.get("/").status == 200
        assert client.get("/").status == 429
    (line,) = _messages(one.gateway, "reloaded")
    assert "/more" in line
    assert one.results() == {"applied": 1, "failed": 0}


def test_sighup_with_a_bad_file_changes_nothing(configure: Configure) -> None:
    """Log, metrics and `/readyz` say why, until a reload succeeds."""
    one = configure(_text("one"))
    started = one.config()
    assert metric(one.gateway, "sluice_config_last_reload_successful") == 1
    one.write(BAD)
    one.gateway.server.signal(signal.SIGHUP)
    assert wait_for_metric(one.gateway, "sluice_config_reloads_total", 1, result="failed")
    assert metric(one.gateway, "sluice_config_last_reload_successful") == 0
    assert one.body() == "one"
    (line,) = _messages(one.gateway, KEPT)
    assert line.endswith("1 problem")
    place = f"{one.file}:5:48: routes./**.limit: "
    (problem,) = _messages(one.gateway, place)
    assert "burts" in problem
    shown = one.config()
    assert shown["applied_at"] == started["applied_at"]
    assert shown["problem"] == problem
    one.write(_text("two"))
    one.gateway.server.signal(signal.SIGHUP)
    assert wait_for_metric(one.gateway, "sluice_config_reloads_total", 1, result="applied")
    assert metric(one.gateway, "sluice_config_last_reload_successful") == 1
    assert list(one.config()) == ["applied_at"]
    assert one.body() == "two"


def test_the_time_of_the_last_reload_is_a_metric(configure: Configure) -> None:
    """First the time of the start; it stays when a reload fails."""
    one = configure(_text("one"))
    name = "sluice_config_applied_timestamp_seconds"
    started = metric(one.gateway, name)
    assert started == pytest.approx(metric(one.gateway, "sluice_start_time_seconds"), abs=30)
    one.write(BAD)
    assert one.post().status_code == 422
    assert metric(one.gateway, name) == started
    one.write(_text("two"))
    before = time.time()
    assert one.post().status_code == 200
    assert before <= metric(one.gateway, name) <= time.time()


def test_a_signal_that_comes_early_is_heeded(tmp_path: Path) -> None:
    """SIGHUP during the start neither ends the gateway nor is lost."""
    port, admin = free_port(), free_port()
    file = tmp_path / "early.yaml"
    text = f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\n"
    file.write_text(text + _text("one"))
    server = ServerProcess(
        "early",
        [sys.executable, "-m", "gateway", "run", str(file)],
        tmp_path,
        lambda: answers(admin, "/readyz"),
        {"PYTHONPATH": PYTHON_PATH},
    )
    try:
        for _ in range(20):
            server.signal(signal.SIGHUP)
        _until(lambda: "reloaded: nothing has changed" in server.stdout, "nothing is said")
    finally:
        assert server.stop() == 0


def test_a_restarted_limiter_knows_what_came_of_reloads(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """It is the one that shows it; when it dies, its successor does."""
    one = _Configured(start_gateway, tmp_path, _text("one"), 2)
    one.write(_text("two"))
    assert one.post().status_code == 200
    one.write(BAD)
    assert one.post().status_code == 422
    shown = one.config()
    applied = metric(one.gateway, "sluice_config_applied_timestamp_seconds")
    os.kill(limiter_of(one.gateway), signal.SIGKILL)
    _until(lambda: bool(_messages(one.gateway, "has been restarted")), "it is not restarted")
    wait_until_ready(one.gateway, 3)
    assert one.config() == shown
    assert metric(one.gateway, "sluice_config_last_reload_successful") == 0
    assert metric(one.gateway, "sluice_config_applied_timestamp_seconds") == applied
    assert one.results() == {"applied": 1, "failed": 1}


# The command.


def test_the_command_prints_what_changed(configure: Configure) -> None:
    """It finds the gateway by its file or its address, and ends with 0."""
    one = configure(_text("one"))
    admin = one.gateway.admin_url.removeprefix("http://")
    for where in ((one.file,), ("-c", one.file), ("--admin", admin)):
        done = _sluice("reload", *where)
        assert (done.returncode, done.stdout, done.stderr) == (0, "Nothing has changed.\n", "")
    one.write(_text("two") + "  /more: { respond: { status: 204 } }\n")
    done = _sluice("reload", one.file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "/more" in done.stdout
    assert one.body() == "two"
    assert one.results() == {"applied": 4, "failed": 0}


def test_the_command_says_that_certificates_were_renewed(
    configure: Configure, authority: Authority
) -> None:
    """Once; with a change of the configuration as well, and they are in use."""
    shown, port = authority.issue("a.test"), free_port()
    one = configure(_text("one"))
    listener = f'{{ address: "127.0.0.1:{port}", tls: {{ cert: {shown.cert}, key: {shown.key} }} }}'
    one.first = one.first.replace("listen: [", f"listen: [{listener}, ")
    one.write(_text("one"))
    assert "is new, with TLS" in _sluice("reload", one.file).stdout

    def names() -> list[str]:
        with secure(RawClient(port), authority.client_context()) as client:
            shown = client.sock.getpeercert()  # type: ignore[attr-defined]
        return [name for _, name in shown["subjectAltName"]]

    renewed = f"Renewed and in use: {shown.cert} and {shown.key}.\n"
    for text, changes in ((_text("one"), ""), (_text("two"), "Route")):
        new = f"{len(text)}{changes.lower()}.test"
        shown.replace_by(authority.issue("a.test", new))
        one.write(text)
        done = _sluice("reload", one.file)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(changes)
        assert done.stdout.endswith(renewed)
        _until(lambda new=new: {tuple(names()) for _ in range(8)} == {("a.test", new)}, "not used")  # type: ignore[misc]
    assert _sluice("reload", one.file).stdout == "Nothing has changed.\n"
    assert len(_messages(one.gateway, "Renewed and in use")) == 2


def test_the_command_says_that_lists_have_changed(configure: Configure, tmp_path: Path) -> None:
    """Also without a change of the configuration, and they are in use soon."""
    blocked = tmp_path / "blocked.txt"
    blocked.write_text("192.0.2.1\n")
    lists = f"lists: {{ blocked: {{ file: '{blocked}' }} }}\ndeny: blocked\n"
    one = configure(lists + _text("one"))
    assert _sluice("reload", one.file).stdout == "Nothing has changed.\n"
    blocked.write_text("127.0.0.0/8\n")
    told = f"Changed, and in use within seconds: {blocked}.\n"
    assert _sluice("reload", one.file).stdout == told
    _until(lambda: get(one.gateway.port).status == 403, "the list is not used")
    assert _sluice("reload", one.file).stdout == "Nothing has changed.\n"
    blocked.write_text("nobody\n")
    assert "line 1: 'nobody' is not a network" in _sluice("reload", one.file).stderr


def test_the_command_says_that_the_gateway_reads_another_file(
    configure: Configure, tmp_path: Path
) -> None:
    """A file that names its admin listener finds it, and is not what is applied."""
    one = configure(_text("one"))
    other = tmp_path / "other.yaml"
    other.write_text(one.first + one.counted(_text("two")))
    done = _sluice("reload", other)
    assert done.stdout == "Nothing has changed.\n"
    assert f"reads {one.file}; {other} was only read for the address" in done.stderr
    assert f"hint: change {one.file}, or start the gateway with {other}" in done.stderr
    assert one.body() == "one"
    same = tmp_path / "same.yaml"
    same.symlink_to(one.file)
    assert _sluice("reload", same).stderr == ""


def test_the_command_prints_problems_as_check_does(configure: Configure) -> None:
    """It ends with 1, and the gateway has logged them as well."""
    one = configure(_text("one"))
    one.write(BAD)
    done = _sluice("reload", one.file)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == _sluice("check", one.file).stderr != ""
    assert "^" in done.stderr
    assert len(_messages(one.gateway, "burts")) == 1
    assert one.body() == "one"


def test_the_command_shows_warnings(configure: Configure) -> None:
    """They do not keep a configuration from being applied."""
    one = configure(_text("one"))
    one.write(_text("two") + "policies: { idle: 1/s }\n")
    done = _sluice("reload", one.file)
    assert done.returncode == 0
    assert done.stderr == _sluice("check", "-q", one.file).stderr
    assert "warning: policies.idle: no route uses" in done.stderr
    assert _messages(one.gateway, "policies.idle: no route uses")


def test_what_only_the_gateway_can_read_is_no_obstacle(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    """Variables of its environment are not needed to find its admin listener."""
    start = partial(start_gateway, env={"DOMAIN_OF_GATEWAY": "shop"})
    one = _Configured(start, tmp_path, "domain: ${DOMAIN_OF_GATEWAY}\n" + _text("one"), 1)
    assert _sluice("check", one.file).returncode == 1
    assert _sluice("reload", one.file).stdout == "Nothing has changed.\n"


def test_an_admin_address_that_changes(configure: Configure) -> None:
    """The command says how to reach the gateway at its old address; then it is at the new one."""
    one = configure(_text("one"))
    old, new = one.gateway.admin_url.removeprefix("http://"), f"127.0.0.1:{free_port()}"
    one.first = one.first.replace(old, new)
    one.write(_text("two"))
    lost = _sluice("reload", one.file)
    assert (lost.returncode, lost.stdout) == (1, "")
    assert f"no answer from {new}" in lost.stderr
    assert "--admin HOST:PORT" in lost.stderr
    assert _sluice("reload", "--admin", old).returncode == 0
    assert one.body() == "two"
    again = _sluice("reload", one.file)
    assert (again.returncode, again.stdout) == (0, "Nothing has changed.\n")


def test_without_an_admin_listener_there_is_the_signal(tmp_path: Path) -> None:
    """The command says so, and that nobody can be asked."""
    file = tmp_path / "off.yaml"
    file.write_text("admin: off\n" + _text("one"))
    done = _sluice("reload", file)
    assert (done.returncode, done.stdout) == (1, "")
    assert "admin: off" in done.stderr
    assert "SIGHUP" in done.stderr


@pytest.mark.parametrize("text", ["routes: [", "admin: 9901\nroutes: {}\n"])
def test_a_file_that_names_no_admin_listener(tmp_path: Path, text: str) -> None:
    """The command cannot ask, and prints what `check` prints."""
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    done = _sluice("reload", file)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == _sluice("check", file).stderr != ""


def test_another_server_is_not_taken_for_a_gateway(nginx_upstream: Upstream) -> None:
    """Its answer is not believed, whatever its status."""
    address = nginx_upstream.url.removeprefix("http://")
    done = _sluice("reload", "--admin", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert address in done.stderr
    assert "hint" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_answer_that_does_not_come() -> None:
    """A gateway that takes too long closes the connection; its log has the outcome."""

    def leave(connection: RawConnection) -> None:
        connection.read_head()

    with RawUpstream(leave) as server:
        done = _sluice("reload", "--admin", server.url.removeprefix("http://"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "its log says" in done.stderr
    assert "Traceback" not in done.stderr


def test_nobody_answers() -> None:
    """Exit status 1, the address, and what to do."""
    port = free_port()
    done = _sluice("reload", "--admin", f"127.0.0.1:{port}")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no answer from 127.0.0.1:{port}" in done.stderr


# The request.


def test_the_request_answers_with_what_came_of_it(configure: Configure) -> None:
    """200 and 422, as JSON; passwords appear nowhere."""
    one = configure(_text("one"))
    one.write(_text("two"))
    answer = one.post()
    assert (answer.status_code, answer.json()["applied"]) == (200, True)
    assert answer.json()["changes"]
    one.write(_text("two") + "store: 'redis://u:hunter2hunter@127.0.0.1:1/0'\n")
    unavailable = one.post()
    assert (unavailable.status_code, unavailable.json()["applied"]) == (422, False)
    (problem,) = unavailable.json()["problems"]
    assert problem["key"] == "store.url"
    assert problem["message"] == "redis://***@127.0.0.1:1/0 is not available"
    one.write(BAD + "store: 'reddis://u:hunter3hunter@127.0.0.1:1/0'\n")
    failed = one.post()
    assert (failed.status_code, failed.json()["applied"]) == (422, False)
    assert [each["line"] for each in failed.json()["problems"]] == [5, 6]
    seen = (
        answer.text + unavailable.text + failed.text + one.gateway.server.stdout + str(one.config())
    )
    assert "hunter" not in seen


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", JSON, 405),
        ("HEAD", JSON, 405),
        ("PUT", JSON, 405),
        ("POST", {}, 415),
        ("POST", {"Content-Type": "text/plain"}, 415),
        ("POST", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("POST", {**JSON, "Origin": "https://evil.test"}, 403),
        ("POST", {**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {**JSON, "Host": "evil.test"}, 421),
        ("OPTIONS", {"Origin": "https://evil.test"}, 405),
    ],
)
def test_pages_in_browsers_cannot_reload(
    configure: Configure, method: str, headers: dict[str, str], status: int
) -> None:
    """Nor does a reading method; nothing is reloaded."""
    one = configure(_text("one"))
    one.write(_text("two"))
    answer = requests.request(
        method, f"{one.gateway.admin_url}/reload", headers=headers, timeout=10
    )
    assert answer.status_code == status
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert one.body() == "one"
    assert one.results() == {"applied": 0, "failed": 0}


def test_what_the_machine_does_not_have_is_a_problem_like_any_other(configure: Configure) -> None:
    """A port in use: the key and the fix, and nothing has changed."""
    one = configure(_text("one"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        more = f"'127.0.0.1:{taken.getsockname()[1]}'"
        one.first = one.first.replace("listen: [", f"listen: [{more}, ")
        one.write(_text("two"))
        answer = one.post()
    assert answer.status_code == 422
    (problem,) = answer.json()["problems"]
    assert (problem["file"], problem["key"]) == (str(one.file), "listen[0]")
    assert "already in use" in problem["message"]
    assert one.body() == "one"


def test_reloads_at_the_same_time(configure: Configure) -> None:
    """Each caller is answered, and what the last one wrote is in force."""
    one = configure(_text("one"))
    command = [sys.executable, "-m", "gateway", "reload", str(one.file)]
    env = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    callers = []
    for number in range(4):
        one.write(_text(f"body {number}"))
        one.gateway.server.signal(signal.SIGHUP)
        callers.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))
    assert [caller.wait(60) for caller in callers] == [0] * 4
    assert one.body() == "body 3"


# Watching.

WATCH: Final = "workers: 1, watch: 100ms"


def test_a_watched_file_is_reloaded_when_it_changes(configure: Configure) -> None:
    """Renamed over or written over; a bad one is reported once."""
    one = configure(_text("one", WATCH))
    one.write(_text("two", WATCH))
    _until(lambda: "reloaded" in one.gateway.server.stdout, "the change is not seen")
    assert one.body() == "two"
    one.write(BAD)
    assert wait_for_metric(one.gateway, "sluice_config_reloads_total", 1, result="failed")
    assert one.body() == "two"
    one.file.write_text(one.first + one.counted(_text("three", WATCH)))
    assert wait_for_metric(one.gateway, "sluice_config_reloads_total", 2, result="applied")
    assert get(one.gateway.port).body == b"three"
    assert len(_messages(one.gateway, "burts")) == 1
    assert one.results() == {"applied": 2, "failed": 1}


def test_watching_is_switched_on_and_off_by_the_file(configure: Configure) -> None:
    """It is off by default."""
    one = configure(_text("one"))
    one.write(_text("two", WATCH))
    assert one.post().status_code == 200
    one.write(_text("three", "workers: 1, watch: off"))
    assert wait_for_metric(one.gateway, "sluice_config_reloads_total", 2, result="applied")
    one.write(_text("four"))
    assert one.post().status_code == 200
    assert one.results() == {"applied": 3, "failed": 0}


def test_a_config_map_is_reloaded_when_kubernetes_replaces_it(tmp_path: Path) -> None:
    """The symlink of the volume is switched, once for all files."""
    port, admin = free_port(), free_port()
    base = f"listen: 127.0.0.1:{port}\nadmin: 127.0.0.1:{admin}\n"
    files = {"base.yaml": base, "routes.yaml": _text("one", WATCH)}
    volume = ConfigMapVolume(tmp_path / "config", files)
    server = ServerProcess(
        "mapped",
        [sys.executable, "-m", "gateway", "run", str(volume.folder)],
        tmp_path,
        lambda: answers(admin, "/readyz"),
        {"PYTHONPATH": PYTHON_PATH},
    )
    try:
        assert get(port).body == b"one"
        for number, body in enumerate(("two", "three"), start=1):
            volume.update({**files, "routes.yaml": _text(body, WATCH)})
            _until(lambda: server.stdout.count("reloaded") == number, "not seen")  # noqa: B023
            assert get(port).body == body.encode()
    finally:
        assert server.stop() == 0


# A gateway without a file.


def test_ratio_renews_certificates_only(tmp_path: Path) -> None:
    """SIGHUP says so, and a request for a reload is refused with 409."""
    port, admin = free_port(), free_port()
    server = ServerProcess(
        "ratio",
        [sys.executable, "-m", "gateway", "ratio"],
        tmp_path,
        lambda: answers(admin, "/readyz"),
        {
            "PYTHONPATH": PYTHON_PATH,
            "RATIO_PORT": str(port),
            "RATIO_HOST": "127.0.0.1",
            "RATIO_STORAGE": "inmemory://",
            "SLUICE_ADMIN": f"127.0.0.1:{admin}",
        },
    )
    try:
        server.signal(signal.SIGHUP)
        _until(lambda: "renews certificates only" in server.stdout, "nothing is said")
        url = f"http://127.0.0.1:{admin}/reload"
        answer = requests.post(url, headers=JSON, timeout=10)
        assert answer.status_code == 409
        done = _sluice("reload", "--admin", f"127.0.0.1:{admin}")
        assert (done.returncode, done.stdout) == (1, "")
        assert "without a configuration file" in done.stderr
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_the_names_of_the_admin_listener_change(
    workers: int, start_gateway: StartGateway, tmp_path: Path
) -> None:
    """A listener that keeps its address answers under the names that it is given now."""
    known = _Configured(start_gateway, tmp_path, _text("a"), workers)
    url = f"{known.gateway.admin_url}/"

    def status() -> int:
        return requests.get(url, headers={"Host": "sluice.default.svc"}, timeout=30).status_code

    assert status() == 421
    address = known.gateway.admin_url.removeprefix("http://")
    known.first = known.first.replace(address, f'{address}, hosts: "*.svc"')
    known.write(_text("a"))
    assert known.post().json()["applied"]
    assert status() == 200
