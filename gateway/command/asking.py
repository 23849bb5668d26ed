"""Commands about a gateway that runs already: they ask its admin listener.

What a listener answers is read as anything that might be there: an older gateway, another program.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.command.arguments import StoreOnce, address
from gateway.command.printing import EXIT_FAILED, EXIT_OK, print_problems

if TYPE_CHECKING:
    from gateway.admin.reloading import ReloadOutcome

DEFAULT_ADMIN: Final = "127.0.0.1:9901"
READY_S: Final = 3
"""How long a health check waits."""
RELOAD_S: Final = 120
"""How long a reload may take; the admin listener itself gives up a little earlier."""


class _AdminReply(NamedTuple):
    """The response of an admin listener."""

    status: int
    body: str


class _NoAnswer(Exception):
    """There is nothing to ask, or nothing answers; the text says why, and what to do about it."""


def add_admin(parser: argparse.ArgumentParser, about: str, *, is_positional: bool = False) -> None:
    """Add the arguments that say which gateway the command is about."""
    where = parser.add_mutually_exclusive_group()
    if is_positional:
        where.add_argument("file", nargs="?", type=Path, metavar="FILE", help=about)
        about = "the same as FILE"
    where.add_argument("-c", "--config", action=StoreOnce, type=Path, metavar="FILE", help=about)
    text = f"the gateway's admin listener (default: {DEFAULT_ADMIN})"
    where.add_argument("--admin", type=address, metavar="HOST:PORT", help=text)


def healthcheck(options: argparse.Namespace) -> int:
    """Print whether a gateway is ready."""
    try:
        admin = _admin(options, "so no health check")
        answer = _ask(options, admin, "GET", "/readyz", READY_S)
    except _NoAnswer as error:
        print(f"sluice: {error}", file=sys.stderr)
        return EXIT_FAILED
    print(answer.body)
    return EXIT_OK if answer.status == http.HTTPStatus.OK else EXIT_FAILED


def reload(options: argparse.Namespace) -> int:
    """Let a gateway read its configuration again, and print what came of it."""
    try:
        admin = _admin(options, f"so it cannot be asked\n  hint: {_SIGHUP}")
        outcome = _reload(options, admin)
    except _NoAnswer as error:
        print(f"sluice: {error}", file=sys.stderr)
        return EXIT_FAILED
    if not outcome.is_applied:
        print_problems(outcome.problems)
        return EXIT_FAILED
    print_problems(outcome.problems, "warning")
    print("\n".join(outcome.changes) or "Nothing has changed.")
    return EXIT_OK


_WHERE: Final = "name the gateway's admin listener with -c FILE or --admin HOST:PORT"
_OLD_ADDRESS: Final = (
    "if the running gateway has another admin listener than the file says, "
    "name it with --admin HOST:PORT"
)
_STILL_AT_WORK: Final = "if it is the gateway, its log says what came of the reload"
_SIGHUP: Final = (
    "send SIGHUP to the gateway instead: kill -HUP PID, "
    "or systemctl kill --signal=HUP --kill-whom=main sluice"
)


def _file(options: argparse.Namespace) -> Path | None:
    chosen: Path | None = getattr(options, "file", None) or options.config
    return chosen


def _admin(options: argparse.Namespace, consequence: str) -> str:
    """Return the address of the admin listener to ask."""
    if options.admin is not None:
        return str(options.admin.reachable)
    file = _file(options)
    if file is None:
        return DEFAULT_ADMIN
    from gateway.config.checking.load import load_admin

    listener = load_admin(file, os.environ)
    if listener is None:
        raise _NoAnswer(f"{file} has admin: off, {consequence}")
    return str(listener.listen.reachable)


def _ask(
    options: argparse.Namespace, admin: str, method: str, path: str, timeout_s: float
) -> _AdminReply:
    connection = http.client.HTTPConnection(admin, timeout=timeout_s)
    headers = {"Content-Type": "application/json"} if method == "POST" else {}
    try:
        connection.connect()
    except OSError as error:
        hint = _WHERE if _file(options) is None else _OLD_ADDRESS
        raise _NoAnswer(f"no answer from {admin}: {error}\n  hint: {hint}") from error
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return _AdminReply(response.status, response.read().decode("utf-8", "replace").strip())
    except (OSError, http.client.HTTPException) as error:
        hint = _WHERE if method == "GET" else _STILL_AT_WORK
        raise _NoAnswer(f"no answer from {admin}: {error}\n  hint: {hint}") from error
    finally:
        connection.close()


def _reload(options: argparse.Namespace, admin: str) -> ReloadOutcome:
    from gateway.admin.reloading import PATH, outcome_of

    answer = _ask(options, admin, "POST", PATH, RELOAD_S)
    try:
        document = json.loads(answer.body)
    except ValueError:
        document = None
    outcome = outcome_of(document)
    if outcome is not None:
        _compare_files(options, admin, document)
        return outcome
    if answer.status in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.METHOD_NOT_ALLOWED}:
        hint = "restart it, or use --admin HOST:PORT for another one"
        message = f"the gateway at {admin} is of a version that cannot reload"
    elif isinstance(document, dict) and isinstance(document.get("detail"), str):
        hint, message = "", f"{admin}: {document['detail']}"
    else:
        hint = _WHERE
        message = f"{admin} answers with status {answer.status}; it is not an admin listener"
    raise _NoAnswer(f"{message}\n  hint: {hint}" if hint else message)


def _compare_files(options: argparse.Namespace, admin: str, document: Any) -> None:
    """Say so if the gateway has read another file than the one that it was found by."""
    file = _file(options)
    # Older gateways do not tell what they read.
    told = document.get("file")
    if file is None or not isinstance(told, str) or not told:
        return
    if Path(told).resolve() != file.resolve():
        print(
            f"sluice: the gateway at {admin} reads {told}; {file} was only read for the address of "
            f"its admin listener\n  hint: change {told}, or start the gateway with {file}",
            file=sys.stderr,
        )
