"""Calls of one gRPC method a second, of several servers in turn, beside a constant answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from statistics import median
from typing import Final, NamedTuple

from bench import proc
from bench.errors import BenchError
from bench.grpc_load import WARM_UP_S, measure
from bench.programs import PYTHON_PATH, python
from bench.results import Goal, Result, ratio
from bench.scenarios.base import Plan, in_rounds
from bench.servers import Server, accepts_tcp, free_port
from bench.stage import Stage

CONSTANT: Final = "constant"
OURS: Final = "Sluice"
CONNECTIONS: Final = 4
IN_FLIGHT: Final = 16

Command = Callable[[int], list[str]]
"""From the port that a server is to listen on to its command."""


class Question(NamedTuple):
    """What a contestant is asked.

    Attributes:
        server: the name of its server.
        request: the message.
    """

    server: str
    request: bytes


class Match(NamedTuple):
    """What is compared.

    Attributes:
        title: what the result is called.
        path: of the method.
        answer: what every answer begins with.
        servers: their commands by name.
        contestants: what is asked of which, by name; one is `CONSTANT` and one `OURS`.
        goal: how many of the constant's calls ours makes at least.
    """

    title: str
    path: str
    answer: bytes
    servers: Mapping[str, Command]
    contestants: Mapping[str, Question]
    goal: float


def constant(path: str, answer: bytes) -> Command:
    """A server that gives one answer whatever it is asked."""
    return lambda port: [python(), "-m", "bench.grpc_constant", str(port), path, answer.hex()]


def sluice(stage: Stage, text: str) -> Command:
    """A gateway of a configuration, in which `{port}` stands for the port."""

    def command(port: int) -> list[str]:
        path = stage.new_directory("sluice") / "sluice.yaml"
        path.write_text(text.replace("{port}", str(port)), encoding="utf-8")
        return [python(), "-m", "gateway", "run", "-c", str(path)]

    return command


def compare(match: Match, plan: Plan, stage: Stage) -> Result:
    """Measure in rounds, each contestant after the other."""
    result = Result(match.title, ["server", "calls/s", "lowest to highest", "CPU us"])
    figures: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with ExitStack() as stack:
        servers = _start(stack, match.servers, stage, result.broken)

        def take(name: str, number: int) -> None:
            question = match.contestants[name]
            server = servers[question.server]
            before = proc.cpu_seconds(server.session)
            rate = measure(
                server.port,
                match.path,
                question.request,
                match.answer,
                plan.seconds,
                connections=CONNECTIONS,
                in_flight=IN_FLIGHT,
            )
            spent = proc.cpu_seconds(server.session) - before
            # Of all calls, those of the warm-up included, which are as many a second.
            cost = spent / (rate * (plan.seconds + WARM_UP_S)) * 1e6
            plan.say(f"  round {number}: {name} {rate:,.0f}, {cost:.0f} us of CPU time each")
            figures.setdefault(name, []).append(rate)
            costs.setdefault(name, []).append(cost)

        measurements = {
            name: (lambda number, name=name: take(name, number))
            for name, question in match.contestants.items()
            if question.server in servers
        }
        working = in_rounds(plan.rounds, measurements, result.broken)
    medians = {name: median(figures[name]) for name in match.contestants if name in working}
    for name, middle in medians.items():
        ends = f"{min(figures[name]):,.0f} to {max(figures[name]):,.0f}"
        result.rows.append([name, f"{middle:,.0f}", ends, f"{median(costs[name]):.0f}"])
    found = ratio(medians.get(OURS), medians.get(CONSTANT))
    result.goals.append(Goal("Sluice / a constant answer", found, match.goal))
    result.remarks.append(
        f"{CONNECTIONS * IN_FLIGHT} calls in flight over {CONNECTIONS} connections. The constant "
        "answer is that of a grpc.aio server without serialisers, on uvloop. CPU time is that of "
        "the server, for one call: it says more where others use the machine."
    )
    return result


def _start(
    stack: ExitStack, servers: Mapping[str, Command], stage: Stage, broken: list[str]
) -> dict[str, Server]:
    """Those that could be started."""
    started: dict[str, Server] = {}
    for name, command in servers.items():
        port = free_port()
        server = Server(
            f"{name} gRPC",
            command(port),
            port,
            stage.cpus.proxy,
            stage.new_directory("grpc"),
            {"PYTHONPATH": PYTHON_PATH},
            accepts_tcp,
        )
        try:
            stack.enter_context(server)
        except BenchError as error:
            broken.append(str(error))
        else:
            started[name] = server
    return started
