"""`sluice diff`: what another configuration would change."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

from gateway.base.errors import ConfigError, Problem
from gateway.command.printing import EXIT_OK, EXIT_USAGE, print_problems

EXIT_DIFFERENT: Final = 1


def add_diff(commands: Any) -> None:
    """Add the command to those of the command line, as argparse keeps them."""
    parser = commands.add_parser(
        "diff",
        help="say what would change between two configurations",
        epilog="Exit status: 0 if nothing would change, 1 if something would, 2 if a configuration "
        "has problems.",
    )
    text = "a YAML file, or a folder of YAML files"
    parser.add_argument("old", type=Path, metavar="OLD", help=text)
    parser.add_argument("new", type=Path, metavar="NEW", help="the same")
    parser.set_defaults(command=diff)


def diff(options: argparse.Namespace) -> int:
    """Print what differs between two configurations.

    Returns:
        0 if nothing differs, 1 if something does, 2 if one of them cannot be used, as diff(1).
    """
    from gateway.config.checking.load import Loaded, load
    from gateway.config.explaining.differences import differences
    from gateway.wiring.inspection import inspection

    loaded: list[Loaded] = []
    problems: dict[Problem, None] = {}
    for path in (options.old, options.new):
        try:
            loaded.append(load(path, os.environ, inspect=inspection(is_start=False)))
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        print_problems(list(problems))
        return EXIT_USAGE
    old, new = loaded
    # As if it took the place of the other, so that the same relative path is no difference.
    new = load(options.new, os.environ, place=options.old)
    found = differences(old.config, new.config)
    hidden = old.secrets | new.secrets
    for sentence in found:
        print(hidden.hide(sentence))
    if not found:
        print("Nothing changes.")
    return EXIT_DIFFERENT if found else EXIT_OK
