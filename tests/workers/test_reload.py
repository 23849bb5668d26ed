"""A gateway of several workers takes another configuration while it runs."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from tests.conftest import StartGateway
from tests.e2e.load import hammer, statuses
from tests.e2e.raw import RawClient, get
from tests.e2e.signs import metric, wait_for_metric
from tests.processes import free_port
from tests.servers import RedisServer
from tests.workers.changing import Changing
from tests.workers.family import (
    children,
    frozen,
    limiter_of,
    wait_until,
    wait_until_ready,
    workers_of,
)

Change = Callable[[str], Changing]

ANSWERS: Final = """
server: {{ workers: 3, watchdog: off }}
store: {{ url: 'memory://', deadline: 5s }}
routes:
  /**: {{ respond: {{ status: 200, body: "{body}" }} }}
"""
COUNTS: Final = """
server: {{ workers: 2 }}
store: {{ url: '{store}', deadline: 5s }}
routes:
  /**: {{ respond: {{ status: 200 }}, limit: {limit} per all, algorithm: fixed_window }}
"""


@pytest.fixture
def change(start_gateway: StartGateway, tmp_path: Path) -> Change:
    """Starts a gateway whose configuration is to change."""
    return lambda config: Changing(start_gateway, tmp_path, config)


def test_all_workers_use_what_the_file_says_now(change: Change) -> None:
    """From the first connection after the answer on; a connection from before goes on, too."""
    changing = change(ANSWERS.format(body="one"))
    family = children(changing.pid)
    clients = [RawClient(changing.gateway.port) for _ in range(12)]
    assert {client.get().body for client in clients} == {b"one"}
    outcome = changing.reload(ANSWERS.format(body="two"))
    assert outcome["applied"], outcome
    assert {client.get().body for client in clients} == {b"two"}
    assert changing.bodies() == {b"two"}
    assert children(changing.pid) == family
    assert metric(changing.gateway, "sluice_config_reloads_total", result="applied") == 1
    for client in clients:
        client.close()


def test_a_signal_reloads_as_a_request_does(change: Change) -> None:
    """SIGHUP to the supervisor; the log says that it is done."""
    changing = change(ANSWERS.format(body="one"))
    changing.signal()
    wait_until(lambda: changing.says("nothing has changed") == 1, "nothing is reloaded")
    assert changing.bodies() == {b"one"}
    changing.write(ANSWERS.format(body="two"))
    changing.signal()
    wait_until(lambda: changing.says("configuration reloaded") == 2, "nothing is reloaded")
    assert changing.bodies() == {b"two"}


def test_a_watched_file_is_reloaded_without_being_asked(change: Change) -> None:
    """Whoever asked for the reload before, each new content is used once."""
    watched = ANSWERS.replace("watchdog: off", "watchdog: off, watch: on")
    changing = change(watched.format(body="one"))
    changing.write(watched.format(body="two"))
    wait_until(lambda: changing.says("configuration reloaded") == 1, "nothing is reloaded")
    assert changing.bodies() == {b"two"}
    # A restarted limiter goes on from there.
    os.kill(limiter_of(changing.gateway), signal.SIGKILL)
    wait_until_ready(changing.gateway, 4)
    changing.write(watched.format(body="three"))
    wait_until(lambda: changing.says("configuration reloaded") == 2, "nothing is reloaded")
    assert changing.bodies() == {b"three"}


def test_a_file_with_a_mistake_changes_nothing_and_says_why(
    change: Change,
) -> None:
    """In the answer, in the log, in the metrics; and a later one without it is used."""
    changing = change(ANSWERS.format(body="one"))
    outcome = changing.reload(ANSWERS.format(body="two").replace("status", "statuss"))
    assert not outcome["applied"]
    (found,) = outcome["problems"]
    assert (found["file"], found["line"]) == (str(changing.file), 7)
    assert "statuss" in found["message"]
    assert changing.bodies() == {b"one"}
    changing.signal()
    wait_until(lambda: changing.says("is not reloaded") == 2, "the signal has no effect")
    assert changing.says("unknown key 'statuss'") == 2
    assert metric(changing.gateway, "sluice_config_reloads_total", result="failed") == 2
    assert metric(changing.gateway, "sluice_config_last_reload_successful") == 0
    assert changing.reload(ANSWERS.format(body="two"))["applied"]
    assert changing.bodies() == {b"two"}


def test_the_number_of_workers_cannot_be_changed(change: Change) -> None:
    """It is said, with what to do instead."""
    changing = change(ANSWERS.format(body="one"))
    config = ANSWERS.format(body="two").replace("workers: 3", "workers: 2")
    outcome = changing.reload(config)
    assert not outcome["applied"]
    assert outcome["problems"][0]["key"] == "server.workers"
    assert "restart" in outcome["problems"][0]["hint"]
    assert changing.bodies() == {b"one"}


def test_what_is_taken_or_missing_on_this_machine_is_found_before_anything_changes(
    change: Change,
) -> None:
    """An address in use, a log in no folder: all goes on as before, and nothing is left open."""
    changing = change(ANSWERS.format(body="one"))
    free = free_port()
    open_files = _open_files(changing.pid)
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        own = f"127.0.0.1:{changing.gateway.port}"
        head = f"listen: ['{own}', '127.0.0.1:{free}', '127.0.0.1:{taken}']\nadmin: off\n"
        outcome = changing.reload(ANSWERS.format(body="two"), head)
        assert outcome["problems"][0]["key"] == "listen[2]", outcome
        assert "in use" in outcome["problems"][0]["message"]
    log = "log: { output: ./none/a.log }\n"
    outcome = changing.reload(log + ANSWERS.format(body="two"))
    assert outcome["problems"][0]["key"] == "log.output", outcome
    assert changing.bodies() == {b"one"}
    assert _refuses(free)
    assert _open_files(changing.pid) == open_files


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _refuses(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


# Counts.


def test_counts_outlive_changed_numbers(change: Change) -> None:
    """The memory store's too: what was spent stays spent, however large the limit is now."""
    changing = change(COUNTS.format(store="memory://", limit="100/d"))
    port = changing.gateway.port
    for _ in range(40):
        assert get(port).status == 200
    assert changing.reload(COUNTS.format(store="memory://?max_keys=5000", limit="60/d"))["applied"]
    left = int(get(port).field("X-RateLimit-Remaining"))
    assert left == 19
    for _ in range(left):
        assert get(port).status == 200
    assert get(port).status == 429


def test_counts_of_memory_are_there_again_after_a_time_in_redis(
    change: Change, redis_server: RedisServer
) -> None:
    """Limits begin anew in another store, and the first one has forgotten nothing."""
    changing = change(COUNTS.format(store="memory://", limit="100/d"))
    port = changing.gateway.port
    for _ in range(10):
        assert get(port).status == 200
    assert changing.reload(COUNTS.format(store=redis_server.url, limit="100/d"))["applied"]
    assert int(get(port).field("X-RateLimit-Remaining")) == 99
    assert changing.reload(COUNTS.format(store="memory://", limit="100/d"))["applied"]
    assert int(get(port).field("X-RateLimit-Remaining")) == 89


# Listeners.


def test_listeners_come_and_go(change: Change, tmp_path: Path) -> None:
    """TCP and Unix ones; all workers serve at a new one, and a kept one keeps its clients."""
    changing = change(ANSWERS.format(body="one"))
    own, more = changing.gateway.port, free_port()
    path = tmp_path / "s.sock"
    admin = f"admin: 127.0.0.1:{changing.gateway.admin_url.rpartition(':')[2]}\n"
    with RawClient(own) as client:
        assert client.get().status == 200
        sockets = f"'127.0.0.1:{more}', {{ address: 'unix:{path}', mode: 0600 }}"
        head = f"listen: ['127.0.0.1:{own}', {sockets}]\n{admin}"
        outcome = changing.reload(ANSWERS.format(body="two"), head)
        assert outcome["applied"], outcome
        assert {get(more).body for _ in range(20)} == {b"two"}
        assert _over(path).endswith(b"two")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        head = f"listen: [{{ address: 'unix:{path}', mode: 0660 }}, '127.0.0.1:{own}']\n{admin}"
        assert changing.reload(ANSWERS.format(body="three"), head)["applied"]
        assert _refuses(more)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert {_over(path)[-5:] for _ in range(20)} == {b"three"}
        assert client.get().body == b"three"
        assert changing.reload(ANSWERS.format(body="four"))["applied"]
        assert client.get().body == b"four"
    assert not path.exists()


def _over(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = b""
        while data := client.recv(1 << 16):
            answer += data
        return answer


def test_the_admin_listener_moves_and_answers_who_asked_for_it(
    change: Change,
) -> None:
    """It is off and on again as well; the counters go on."""
    changing = change(ANSWERS.format(body="one"))
    listen = f"listen: 127.0.0.1:{changing.gateway.port}\n"
    port = free_port()
    head = f"{listen}admin: 127.0.0.1:{port}\n"
    assert changing.reload(ANSWERS.format(body="two"), head)["applied"]
    old = int(changing.gateway.admin_url.rpartition(":")[2])
    wait_until(lambda: _refuses(old), "the old address is still there")
    url = f"http://127.0.0.1:{port}"
    text = requests.get(f"{url}/metrics", timeout=20).text
    assert 'sluice_config_reloads_total{result="applied"} 1.0' in text
    changing.write(ANSWERS.format(body="three"), f"{listen}admin: off\n")
    assert changing.ask(url)["applied"]
    wait_until(lambda: _refuses(port), "the address is still there")
    changing.write(ANSWERS.format(body="four"))
    changing.signal()
    wait_until(lambda: not _refuses(old), "there is no admin listener")
    # It may answer before it hears that all workers have done their part.
    reloads = "sluice_config_reloads_total"
    assert wait_for_metric(changing.gateway, reloads, 3, result="applied")
    assert changing.bodies() == {b"four"}


def test_what_waits_at_an_address_that_goes_is_served(change: Change) -> None:
    """Connections in the queues of workers that are busy are taken before these are closed."""
    changing = change(ANSWERS.format(body="one"))
    port, other = changing.gateway.port, free_port()
    admin = f"admin: 127.0.0.1:{changing.gateway.admin_url.rpartition(':')[2]}\n"
    with frozen(*workers_of(changing.gateway)):
        clients = [RawClient(port) for _ in range(30)]
        for client in clients:
            client.request()
        changing.write(ANSWERS.format(body="two"), f"listen: 127.0.0.1:{other}\n{admin}")
        changing.signal()
    assert [client.read().status for client in clients] == [200] * 30
    wait_until(lambda: changing.says("configuration reloaded") == 1, "nothing is reloaded")
    assert _refuses(port)
    assert {get(other).body for _ in range(20)} == {b"two"}
    for client in clients:
        client.close()


def test_all_processes_log_where_the_file_says(change: Change, tmp_path: Path) -> None:
    """In a new file from then on; a level and a format of another kind, too."""
    changing = change(ANSWERS.format(body="one"))
    log = tmp_path / "new.log"
    config = f"log: {{ output: '{log}', format: text }}\n" + ANSWERS.format(body="two")
    assert changing.reload(config)["applied"]
    assert changing.bodies(20) == {b"two"}
    wait_until(lambda: log.read_text().count(" 200 ") == 20, "lines are missing")
    assert "configuration reloaded" in log.read_text()
    size = len(changing.gateway.server.stdout)
    os.kill(workers_of(changing.gateway)[0], signal.SIGTERM)
    wait_until(lambda: log.read_text().count("has been replaced") == 1, "it is not told there")
    assert len(changing.gateway.server.stdout) == size


# Processes that end or hang meanwhile.


def test_a_worker_that_was_restarted_uses_the_new_configuration(
    change: Change,
) -> None:
    """Any worker and the limiter, with the addresses that there are now."""
    changing = change(ANSWERS.format(body="one"))
    more = free_port()
    admin = f"admin: 127.0.0.1:{changing.gateway.admin_url.rpartition(':')[2]}\n"
    head = f"listen: ['127.0.0.1:{more}', '127.0.0.1:{changing.gateway.port}']\n{admin}"
    assert changing.reload(ANSWERS.format(body="two"), head)["applied"]
    for pid in children(changing.pid):
        os.kill(pid, signal.SIGKILL)
    wait_until_ready(changing.gateway, 4)
    assert changing.bodies() == {b"two"}
    assert {get(more).body for _ in range(20)} == {b"two"}
    assert changing.reload(ANSWERS.format(body="three"), head)["applied"]
    assert {get(more).body for _ in range(20)} == {b"three"}


@pytest.mark.parametrize("victim", ["limiter", "worker"])
def test_a_process_that_is_killed_between_the_phases_blocks_nothing(
    change: Change, victim: str
) -> None:
    """It has prepared what another has not: its successor prepares it, and then all use it."""
    changing = change(ANSWERS.format(body="one"))
    limiter, stopped, other = [limiter_of(changing.gateway), *workers_of(changing.gateway)[:2]]
    killed = {"limiter": limiter, "worker": other}[victim]
    with frozen(stopped):
        changing.write(ANSWERS.format(body="two"))
        changing.signal()
        changing.wait_until_sent()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: len(children(changing.pid)) == 4, "it is not restarted")
        wait_until(lambda: killed not in children(changing.pid), "it has not ended")
        assert changing.says("configuration reloaded") == 0
    wait_until(lambda: changing.says("configuration reloaded") == 1, "nothing is reloaded")
    assert changing.bodies() == {b"two"}
    wait_until_ready(changing.gateway, 4)


def test_a_stopped_process_that_is_killed_has_a_successor_that_takes_part(
    change: Change,
) -> None:
    """Killed while everybody waits for it, as the watchdog does."""
    changing = change(ANSWERS.format(body="one"))
    victim = workers_of(changing.gateway)[0]
    with frozen(victim):
        outcomes: list[dict[str, Any]] = []
        changing.write(ANSWERS.format(body="two"))
        asking = changing.ask_in_background(outcomes)
        changing.wait_until_sent()
        os.kill(victim, signal.SIGKILL)
        asking.join()
    assert outcomes[0]["applied"], outcomes
    assert changing.bodies() == {b"two"}


def test_a_process_that_does_not_answer_is_named_and_all_stays_as_it_was(
    change: Change,
) -> None:
    """Nobody uses the new configuration, not even when it goes on; the next reload is for all."""
    changing = change(ANSWERS.format(body="one"))
    victim = workers_of(changing.gateway)[1]
    open_files = _open_files(changing.pid)
    with frozen(victim):
        outcome = changing.reload(ANSWERS.format(body="two"))
        assert not outcome["applied"]
        assert outcome["problems"][0]["message"] == "no answer within 10 s from worker-2"
    assert changing.bodies() == {b"one"}
    assert _open_files(changing.pid) == open_files
    assert changing.ask()["applied"]
    assert changing.bodies() == {b"two"}


def test_requests_during_a_reload_are_one_more_reload(change: Change) -> None:
    """Which reads the file again, since it may have changed after it was read."""
    changing = change(ANSWERS.format(body="one"))
    outcomes: list[dict[str, Any]] = []
    with frozen(workers_of(changing.gateway)[0]):
        changing.write(ANSWERS.format(body="two"))
        asking = changing.ask_in_background(outcomes)
        changing.wait_until_sent()
        changing.write(ANSWERS.format(body="three"))
        for _ in range(3):
            changing.signal()
    asking.join()
    assert outcomes[0]["applied"], outcomes
    wait_until(lambda: changing.says("configuration reloaded") == 2, "the last one is missing")
    assert changing.bodies() == {b"three"}
    assert changing.ask()["changes"] == []
    assert changing.says("configuration reloaded") == 3


def test_a_gateway_that_stops_meanwhile_stops(change: Change) -> None:
    """Who asked for the reload is told; with what it had bound for it, nothing is left."""
    changing = change(ANSWERS.format(body="one"))
    stopped = workers_of(changing.gateway)[0]
    outcomes: list[dict[str, Any]] = []
    with frozen(stopped):
        changing.write(ANSWERS.format(body="two"))
        asking = changing.ask_in_background(outcomes)
        changing.wait_until_sent()
        changing.gateway.server.signal(signal.SIGTERM)
        asking.join()
    assert not outcomes[0]["applied"]
    assert "stopping" in outcomes[0]["detail"]
    assert changing.gateway.server.process.wait(20) == 0


def test_a_worker_that_leaves_takes_part_or_its_successor_does(
    change: Change,
) -> None:
    """Reloads while each worker in turn is stopped by somebody else."""
    changing = change(ANSWERS.format(body="0"))
    for number, pid in enumerate(workers_of(changing.gateway), 1):
        os.kill(pid, signal.SIGTERM)
        assert changing.reload(ANSWERS.format(body=str(number)))["applied"]
        wait_until(lambda pid=pid: pid not in children(changing.pid), "it does not end")  # type: ignore[misc]
        assert changing.bodies() == {str(number).encode()}
    wait_until_ready(changing.gateway, 4)


# Many of them.


async def test_a_hundred_reloads_under_load_lose_nothing(
    change: Change,
) -> None:
    """Routes, limits and listeners come and go; each request is answered, and each is counted."""
    more = free_port()

    def config(number: int) -> tuple[str, str]:
        changing_routes = "".join(
            f"  /extra-{one}: {{ respond: {{ status: 204 }}, limit: {1 + number}/s }}\n"
            for one in range(number % 5)
        )
        text = (
            "server: { workers: 2 }\nstore: { url: 'memory://', deadline: 5s }\nroutes:\n"
            f"{changing_routes}"
            f"  /**: {{ respond: {{ status: 200 }}, limit: {200_000 + number}/d per all, "
            "algorithm: fixed_window }\n"
        )
        listen = f"127.0.0.1:{port}"
        both = f"['{listen}', '127.0.0.1:{more}']" if number % 3 == 0 else f"'{listen}'"
        return text, f"listen: {both}\nadmin: 127.0.0.1:{admin}\n"

    port, admin = 0, 0
    first, _ = config(0)
    changing = await asyncio.to_thread(change, first)
    port = changing.gateway.port
    admin = int(changing.gateway.admin_url.rpartition(":")[2])
    sizes: dict[int, int] = {}

    async def reload() -> None:
        for number in range(1, 101):
            outcome = await asyncio.to_thread(changing.reload, *config(number))
            assert outcome["applied"], outcome
            if number in {40, 100}:
                sizes[number] = sum(map(_memory, children(changing.pid)))

    family = children(changing.pid)
    samples = await hammer([changing.gateway.url + "/one"], ["a"], reload, 6, pause_s=0.002)
    assert statuses(samples) == {200: len(samples)}
    assert children(changing.pid) == family
    answer = await asyncio.to_thread(get, port)
    assert int(answer.field("X-RateLimit-Remaining")) == 200_100 - len(samples) - 1
    assert metric(changing.gateway, "sluice_config_reloads_total", result="applied") == 100
    # Three processes: 2 MB each for whatever allocators do.
    assert sizes[100] - sizes[40] < 6 << 20, sizes


def _memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError(pid)
