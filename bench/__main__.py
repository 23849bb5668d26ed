"""`python -m bench [SCENARIO ...]`: measure, print, and after a whole run write RESULTS.md.

Exits with 1 when a goal is missed or a contestant could not be measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench import report
from bench.errors import BenchError
from bench.limiter import contestants
from bench.machine import choose_cpus, describe, pin_self
from bench.programs import program, version_of
from bench.results import Result
from bench.rivals.base import Rival
from bench.rivals.caddy import CADDY
from bench.rivals.envoy import ENVOY
from bench.rivals.haproxy import HAPROXY
from bench.rivals.nginx import NGINX
from bench.rivals.plain import PLAIN
from bench.rivals.sluice import SLUICE
from bench.rivals.traefik import TRAEFIK
from bench.scenarios import SCENARIOS
from bench.scenarios.base import Plan
from bench.stage import set_stage

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
_PROGRAMS: tuple[tuple[str, Rival], ...] = (
    ("Sluice", SLUICE),
    ("nginx", NGINX),
    ("HAProxy", HAPROXY),
    ("Envoy", ENVOY),
    ("Traefik", TRAEFIK),
    ("Caddy", CADDY),
    ("aiohttp", PLAIN),
)
_TERMS = (
    (
        "Each proxy has one CPU and one worker or thread (GOMAXPROCS=1 for those in Go), forwards "
        "over keep-alive connections, holds each client address to a limit, and writes a line per "
        "request to an access log file (buffered where the program can)."
    ),
    (
        "wrk, one thread, 64 connections, five request headers; the upstream is an nginx that "
        "answers with a JSON body of 113 bytes."
    ),
    (
        "Each library has a process of its own, which is asked as its users ask it, on the CPU of "
        "the proxies; the stores are on the other one."
    ),
)


def main(argv: list[str]) -> int:
    """Run the scenarios that were named, or all."""
    arguments = _parse(argv)
    names: list[str] = arguments.scenario or list(SCENARIOS)
    plan = Plan(arguments.seconds, arguments.rounds, say=_say)
    cpus = choose_cpus()
    pin_self(cpus.load)
    machine = describe(cpus)
    _say("\n".join(machine))
    results: list[Result] = []
    with set_stage(cpus) as stage:
        for name in names:
            _say(f"\n{name}: measuring")
            for result in SCENARIOS[name](plan, stage):
                _say(report.text(result))
                results.append(result)
    output: Path | None = arguments.output or (None if arguments.scenario else RESULTS)
    if output is not None:
        length = f"{plan.rounds} interleaved rounds of {plan.seconds:g} s; medians are told."
        report.write(output, results, machine, _versions(), [*_TERMS, length])
        _say(f"\nwritten to {output.name}")
    is_clean = all(goal.is_met for r in results for goal in r.goals)
    return 0 if is_clean and not any(result.broken for result in results) else 1


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Sluice and its rivals.")
    names = ", ".join(SCENARIOS)
    parser.add_argument("scenario", nargs="*", help=f"of {names}; all when none is named")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one measurement (5)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (3)")
    parser.add_argument(
        "--output", type=Path, help="write a report here (RESULTS.md after a whole run)"
    )
    arguments = parser.parse_args(argv)
    if arguments.seconds < 1 or arguments.rounds < 1:
        parser.error("--seconds and --rounds are at least 1")
    unknown = [name for name in arguments.scenario if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario named {', '.join(unknown)}; there are {names}")
    return arguments


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, rival in _PROGRAMS:
        try:
            found[name] = rival.version()
        except BenchError:
            found[name] = "(not installed)"
    found |= contestants.versions()
    found["Redis"] = version_of([program("redis-server"), "--version"])
    return {**found, "Python": ".".join(map(str, sys.version_info[:3]))}


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BenchError as error:
        sys.exit(f"bench: {error}")
