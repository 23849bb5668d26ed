"""The `sluice` command: the only place that prints or ends the process.

Modules that only one command needs are imported inside that command, so that `sluice run` starts
fast.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import gateway
from gateway.base.build import BUILD
from gateway.base.errors import ConfigError, GatewayError, Problem, StartError, problems_of
from gateway.command.arguments import StoreOnce, address
from gateway.command.asking import add_admin, healthcheck, reload
from gateway.command.comparing import add_diff
from gateway.command.explaining import add_explain
from gateway.command.preload import preload
from gateway.command.printing import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    escape_unprintable,
    print_problems,
)
from gateway.workers.start_signals import StartSignals

if TYPE_CHECKING:
    from gateway.config.checking.check import Checked
    from gateway.config.checking.load import ConfigFiles
    from gateway.config.models.gateway import GatewayConfig
    from gateway.wiring.gateway import Gateway
    from gateway.wiring.reloading import Reloader
    from gateway.workers.upgrade import Succession

STDERR: Final = 2
COMMANDS: Final = (
    *("run", "reload", "check", "explain", "diff", "schema", "import"),
    *("ratio", "demo", "healthcheck", "version"),
)
SYSTEMS: Final = ("envoy-ratelimit",)
RATIO_VARIABLES: Final = (
    "Environment variables and their defaults: RATIO_PORT (50051), "
    "RATIO_CONNECTION_TIMEOUT (1s), RATIO_STORAGE (redis://redis:6379/0), RATIO_LIMIT "
    "(100/m), RATIO_HOST (all addresses), SLUICE_DOMAIN (ratio), SLUICE_ADMIN (off)."
)


def main(arguments: Sequence[str] | None = None, start_signals: StartSignals | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command line without the program's name.
        start_signals: those that have come already, for a command that serves.

    Returns:
        0 for success, 1 for failure, 2 for an invalid command line.
    """
    _take_standard_files()
    escape_unprintable()
    options = _parser().parse_args(arguments)
    options.start_signals = start_signals
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ConfigError as error:
        print_problems(error.problems)
    except StartError as error:
        print_problems(problems_of(error, str(_config(options))))
    except GatewayError as error:
        print(f"sluice: {error}", file=sys.stderr)
    except BrokenPipeError:
        # The reader has closed the pipe; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILED


class _ArgumentParser(argparse.ArgumentParser):
    """Reports misuse with the mistake and where to look, instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        """End the process with argparse's message, reworded where that is unclear."""
        unknown = re.search(r"invalid choice: '([^']*)'", message)
        hint = f"run {self.prog} --help for a list"
        if unknown:
            from difflib import get_close_matches

            is_import = "import" in self.prog
            message = f"unknown command: {unknown[1]!r}"
            if is_import:
                message = f"{unknown[1]!r} cannot be imported"
                hint = f"systems that can be imported: {', '.join(SYSTEMS)}"
            near = get_close_matches(unknown[1], SYSTEMS if is_import else COMMANDS, 1)
            hint = f"did you mean {self.prog} {near[0]}? {hint}" if near else hint
        elif self.prog.endswith(" diff"):
            hint = f"for example: {self.prog} old.yaml new.yaml"
        elif "FILE" in message and "required" in message:
            message = "no configuration is given"
            hint = f"for example: {self.prog} sluice.yaml"
        elif message.endswith(("twice", ".yaml", ".yml")):
            hint = "put the files into one folder: sluice run FOLDER"
        self.exit(EXIT_USAGE, f"sluice: {message}\n  hint: {hint}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _ArgumentParser(
        prog="sluice", description="A rate-limiting reverse-proxy gateway.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=_own_version())
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="start the gateway")
    _add_config(run)
    run.set_defaults(command=_run)

    again = commands.add_parser("reload", help="let a running gateway reload its configuration")
    text = "the configuration that the gateway runs with, to find its admin listener in"
    add_admin(again, text, is_positional=True)
    again.set_defaults(command=reload)

    check = commands.add_parser("check", help="check a configuration and report all mistakes")
    _add_config(check)
    check.add_argument("--explain", action="store_true", help="explain what the configuration does")
    check.add_argument("-q", "--quiet", action="store_true", help="print problems only")
    check.set_defaults(command=_check)

    add_explain(commands)
    add_diff(commands)

    schema = commands.add_parser("schema", help="print the JSON Schema of the configuration")
    schema.set_defaults(command=_schema)

    importer = commands.add_parser("import", help="convert another system's configuration")
    systems = importer.add_subparsers(required=True, metavar="SYSTEM")
    envoy = systems.add_parser("envoy-ratelimit", help="Envoy's own rate limit service")
    envoy.add_argument(
        "sources", nargs="+", type=Path, metavar="SOURCE", help="its YAML files, or folders of them"
    )
    envoy.set_defaults(command=_import_envoy_ratelimit)

    ratio = commands.add_parser(
        "ratio", help="act as a ratio server, with its variables", epilog=RATIO_VARIABLES
    )
    ratio.set_defaults(command=_ratio)

    demo = commands.add_parser("demo", help="start a demo upstream and a gateway in front of it")
    demo.add_argument(
        "--listen",
        type=address,
        default="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="default: %(default)s",
    )
    demo.set_defaults(command=_demo)

    health = commands.add_parser("healthcheck", help="check whether a running gateway is ready")
    add_admin(health, "the configuration that the gateway runs with")
    health.set_defaults(command=healthcheck)

    version = commands.add_parser("version", help="print the versions of Sluice and its libraries")
    version.set_defaults(command=_version)
    return parser


def _own_version() -> str:
    return f"sluice {gateway.__version__} ({BUILD})"


def _add_config(parser: argparse.ArgumentParser) -> None:
    """Add the configuration argument: `FILE` and `-c FILE` are the same, and one is required."""
    text = "a YAML file, or a folder of YAML files"
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("file", nargs="?", type=Path, metavar="FILE", help=text)
    text = "the same as FILE"
    either.add_argument("-c", "--config", action=StoreOnce, type=Path, metavar="FILE", help=text)


def _config(options: argparse.Namespace) -> Path:
    """Return the path of the configuration that the command is about."""
    chosen: Path | None = getattr(options, "file", None) or getattr(options, "config", None)
    if chosen is None:
        from gateway.command.demo import CONFIG

        return CONFIG
    return chosen


def _run(options: argparse.Namespace) -> int:
    start_signals = options.start_signals or StartSignals()
    _get_ready()
    from gateway.config.checking.load import ConfigFiles
    from gateway.wiring.inspection import inspection
    from gateway.workers.upgrade import succession_of

    succession = succession_of(os.environ)
    with succession.telling_failures():
        files = ConfigFiles(_config(options), os.environ, partial(inspection, is_start=True))
        loaded = files.load()
        print_problems(loaded.warnings, "warning")
        if start_signals.is_ending:
            return EXIT_OK
        succession.use_for(loaded.config)
        if loaded.config.server.workers != 1:
            from gateway.workers.cpus import worker_count
            from gateway.workers.supervisor import supervise

            workers = worker_count(loaded.config.server.workers)
            if workers > 1:
                return supervise(loaded, workers, files, start_signals, succession)
        reloader_of = _reloader_of(files, loaded, succession)
        return _run_alone(loaded.config, start_signals, succession, reloader_of)


def _reloader_of(
    files: ConfigFiles, loaded: Checked, succession: Succession
) -> Callable[[Gateway], Reloader]:
    """Return what makes the reloader of a gateway."""
    from gateway.wiring.changed_files import fingerprints
    from gateway.wiring.reloading import Reloader

    return partial(
        Reloader,
        source=files,
        secrets=loaded.secrets,
        manager=succession.manager,
        drop_unwanted=succession.drop_unwanted,
        certificates=fingerprints(loaded.config),
    )


def _get_ready() -> None:
    """Prepare the process for serving; every process that serves does this."""
    _allow_open_files()
    _silence_grpc_log()
    _import("gateway.wiring.gateway")


def _import(*names: str) -> None:
    """Import the modules that read configurations, and those named."""
    preload(*names, "gateway.config.checking.load", "gateway.wiring.certificates")


def _run_alone(
    config: GatewayConfig,
    start_signals: StartSignals,
    succession: Succession,
    reloader_of: Callable[[Gateway], Reloader] | None = None,
) -> int:
    """Run a gateway in this process until a signal stops it; as `alone.serve`."""
    from gateway.command.alone import serve
    from gateway.workers.loop import run_in_loop

    return run_in_loop(lambda: serve(config, start_signals, succession, _nothing, reloader_of))


def _take_standard_files() -> None:
    """Open closed standard streams, so that no socket gets the number of one of them."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(number)


def _allow_open_files() -> None:
    """Raise the limit of open files to its maximum: the usual 1024 allow only 500 clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _silence_grpc_log() -> None:
    """Silence the log that gRPC's library writes to stderr, unless the environment asks for it.

    It writes a line for each failed handshake and an error for each name that no certificate has,
    so strangers could fill a disk.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "none")


async def _nothing(_addresses: Sequence[object]) -> None:
    pass


def _check(options: argparse.Namespace) -> int:
    _import()
    from gateway.config.checking.load import load
    from gateway.wiring.inspection import inspection

    path = _config(options)
    loaded = load(path, os.environ, inspect=inspection(is_start=False))
    missing = _missing_libraries(str(path), loaded.config)
    print_problems([*loaded.warnings, *missing], "warning")
    if options.explain:
        from gateway.config.explaining.explain import explain

        print(loaded.secrets.hide("\n".join(explain(loaded.config))))
    elif not options.quiet:
        config = loaded.config
        print(
            f"{path}: OK, {_count(len(config.routes), 'route')}, "
            f"{_count(len(config.policies), 'policy', 'policies')}, "
            f"store {config.store.redacted_url}"
        )
    return EXIT_OK


def _missing_libraries(file: str, config: GatewayConfig) -> list[Problem]:
    """Return the problems that a start on this machine would have; they may not apply elsewhere."""
    from dataclasses import replace
    from functools import partial

    from gateway.stores.opening import find_store
    from gateway.systems.listeners import find_maker
    from gateway.wiring.geoip import require_reader
    from gateway.wiring.limiter import store_urls
    from gateway.wiring.tokens import require_library

    problems: list[Problem] = []
    for place, url in store_urls(config).items():
        try:
            find_store(url)
        except ConfigError as error:
            problems += [replace(problem, file=file, path=place) for problem in error.problems]
    needs: list[Callable[[], object]] = [
        partial(require_library, config),
        partial(require_reader, config),
    ]
    needs += [partial(find_maker, index, one) for index, one in enumerate(config.listeners)]
    for need in needs:
        try:
            need()
        except StartError as error:
            problems += problems_of(error, file)
    return problems


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _schema(_options: argparse.Namespace) -> int:
    import json

    from gateway.config.explaining.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return EXIT_OK


def _import_envoy_ratelimit(options: argparse.Namespace) -> int:
    from gateway.config.checking.check import check_text
    from gateway.config.checking.load import fetch
    from gateway.importing.envoy_ratelimit import import_envoy_ratelimit

    sources = [source for path in options.sources for source in fetch(path)]
    imported = import_envoy_ratelimit(sources)
    print_problems(imported.notes, "note")
    # The output must be a valid configuration, or nothing is printed.
    check_text(imported.text, file="the result")
    print(imported.text, end="")
    return EXIT_OK


def _ratio(options: argparse.Namespace) -> int:
    start_signals = options.start_signals or StartSignals()
    _get_ready()
    from gateway.systems.ratio.environment import read_environment, told_of
    from gateway.workers.upgrade import succession_of

    succession = succession_of(os.environ)
    with succession.telling_failures():
        found = read_environment(os.environ)
        print_problems(found.warnings, "warning")
        succession.use_for(found.config)
        try:
            return _run_alone(found.config, start_signals, succession)
        except StartError as error:
            raise told_of(error) from error


def _demo(options: argparse.Namespace) -> int:
    start_signals = options.start_signals or StartSignals()
    _get_ready()
    from gateway.workers.loop import run_in_loop
    from gateway.workers.upgrade import succession_of

    succession = succession_of(os.environ)
    try:
        return run_in_loop(lambda: _serve_demo(str(options.listen), start_signals, succession))
    except StartError as error:
        if error.path != "listen":
            raise
        # The user cannot edit the configuration of the demo.
        hint = 'make run ARGS="--listen 127.0.0.1:8081", or sluice demo --listen 127.0.0.1:8081'
        raise StartError(error.path, error.message, hint) from error


async def _serve_demo(listen: str, start_signals: StartSignals, succession: Succession) -> int:
    from gateway.command import demo
    from gateway.command.alone import serve
    from gateway.config.checking.load import ConfigFiles
    from gateway.config.explaining.explain import outline

    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(demo.DemoUpstream())
        files = ConfigFiles(demo.CONFIG, demo.environment(upstream.url, listen))
        loaded = files.load()
        config = loaded.config
        reloader_of = _reloader_of(files, loaded, succession)

        async def announce(addresses: Sequence[object]) -> None:
            print(f"Sluice listens on http://{addresses[0]}, in front of a demo upstream.")
            print("Its configuration is", demo.CONFIG, "\n")
            print("\n".join(outline(config)))
            print("\nTry these in another terminal, in this order; press Ctrl-C here to stop:\n")
            print("\n".join(demo.suggestions(f"http://{addresses[0]}")), "\n", flush=True)

        return await serve(config, start_signals, succession, announce, reloader_of)
    raise AssertionError("the stack lets nothing pass")


def _version(_options: argparse.Namespace) -> int:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    print(_own_version())
    print(f"{platform.python_implementation()} {platform.python_version()}, {platform.platform()}")
    ours = ("aiohttp", "uvloop", "redis", "hiredis", "pydantic", "PyYAML")
    for package in (*ours, "asyncmy", "cryptography", "grpcio", "protobuf", "pyzmq"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} is not installed")
    return EXIT_OK
