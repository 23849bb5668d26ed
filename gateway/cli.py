"""The `sluice` command: the only place that prints or ends the process.

Modules that only one command needs are imported by that command, so that `sluice run` starts
as fast as it can.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import gateway
from gateway.config.load import load
from gateway.config.models import GatewayConfig
from gateway.errors import ConfigError, GatewayError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: as on the command line, without the program's name.

    Returns:
        0 for success, 1 for failure, 2 for a command line that cannot be read.
    """
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ConfigError as error:
        _print_problems(error)
    except GatewayError as error:
        print(f"sluice: {error}", file=sys.stderr)
    except BrokenPipeError:
        # The reader of our output has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice", description="A rate-limiting reverse-proxy gateway."
    )
    parser.add_argument("--version", action="version", version=f"sluice {gateway.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="start the gateway")
    _add_config(run, "-c", "--config", required=True)
    run.set_defaults(command=_run)

    check = commands.add_parser("check", help="say everything that is wrong with a configuration")
    _add_config(check, "config")
    check.add_argument("--explain", action="store_true", help="say in sentences what it will do")
    check.add_argument("-q", "--quiet", action="store_true", help="print problems only")
    check.set_defaults(command=_check)

    schema = commands.add_parser("schema", help="print the JSON Schema of configurations")
    schema.set_defaults(command=_schema)

    demo = commands.add_parser("demo", help="start a gateway in front of a small upstream")
    demo.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="HOST:PORT", help="(%(default)s)"
    )
    demo.set_defaults(command=_demo)

    health = commands.add_parser("healthcheck", help="ask a running gateway whether it is ready")
    health.add_argument(
        "--admin", default="127.0.0.1:9901", metavar="HOST:PORT", help="(%(default)s)"
    )
    health.set_defaults(command=_healthcheck)
    return parser


def _add_config(parser: argparse.ArgumentParser, *names: str, **options: Any) -> None:
    parser.add_argument(
        *names, type=Path, metavar="FILE", help="a YAML file, or a folder of them", **options
    )


def _print_problems(error: ConfigError) -> None:
    from gateway.config.render import render

    print(render(error.problems), file=sys.stderr)


def _run(options: argparse.Namespace) -> int:
    loaded = load(options.config, os.environ)
    for warning in loaded.warnings:
        print(f"sluice: {warning}", file=sys.stderr)
    return _in_loop(lambda: _serve(loaded.config, _nothing))


async def _nothing(_addresses: Sequence[object]) -> None:
    pass


async def _serve(
    config: GatewayConfig, started: Callable[[Sequence[object]], Awaitable[None]]
) -> int:
    """Run a gateway until a signal says that it is to end."""
    from gateway.app import Gateway

    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        running = Gateway(config)
        await running.start()
    except OSError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return EXIT_FAILED
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _end, loop, number, ended)
    loop.add_signal_handler(signal.SIGUSR1, running.reopen_log)
    # What was made so far lives as long as the process: no collection need look at it.
    gc.collect()
    gc.freeze()
    await started(running.addresses)
    await ended.wait()
    await running.stop()
    return EXIT_OK


def _end(loop: asyncio.AbstractEventLoop, number: int, ended: asyncio.Event) -> None:
    """End in peace at the first signal, at once at the second."""
    ended.set()
    loop.remove_signal_handler(number)
    signal.signal(number, signal.SIG_DFL)


def _in_loop(work: Callable[[], Any]) -> int:
    try:
        import uvloop
    except ImportError:
        factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        code: int = runner.run(work())
    return code


def _check(options: argparse.Namespace) -> int:
    loaded = load(options.config, os.environ)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if options.explain:
        from gateway.config.explain import explain

        print("\n".join(explain(loaded.config)))
    elif not options.quiet:
        config = loaded.config
        print(
            f"{options.config}: OK, {_count(len(config.routes), 'route')}, "
            f"{_count(len(config.policies), 'policy', 'policies')}, "
            f"store {config.store.redacted_url}"
        )
    return EXIT_OK


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _schema(_options: argparse.Namespace) -> int:
    from gateway.config.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return EXIT_OK


def _demo(options: argparse.Namespace) -> int:
    return _in_loop(lambda: _serve_demo(options.listen))


async def _serve_demo(listen: str) -> int:
    from gateway import demo
    from gateway.config.explain import explain

    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(demo.DemoUpstream())
        config = load(demo.CONFIG, demo.environment(upstream.url, listen)).config

        async def announce(addresses: Sequence[object]) -> None:
            print("\n".join(explain(config)))
            print(f"\nListening on http://{addresses[0]}. Try, in another terminal:\n")
            print("\n".join(demo.suggestions(f"http://{addresses[0]}")))
            print("\nThe configuration is", demo.CONFIG, "- end with Ctrl-C.\n", flush=True)

        return await _serve(config, announce)
    raise AssertionError("the stack lets nothing pass")


def _healthcheck(options: argparse.Namespace) -> int:
    connection = http.client.HTTPConnection(options.admin, timeout=3)
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        body = response.read().decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        print(f"sluice: no answer from {options.admin}: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        connection.close()
    print(body)
    return EXIT_OK if response.status == http.HTTPStatus.OK else EXIT_FAILED
