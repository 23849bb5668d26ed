"""Turns nodes into a configuration, or into all problems found in it.

Pure: files, environment and secrets are arguments; `load` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FolderPath
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.base.errors import ConfigError, Problem
from gateway.config.checking import (
    condition_checks,
    cross,
    key_checks,
    list_checks,
    throttlex_checks,
)
from gateway.config.checking.capabilities import unsupported
from gateway.config.checking.lints import (
    bodies_of_refusals,
    fields_of_cors,
    foreign_variables,
    patterns,
    redirect_loops,
    variables_of_responses,
)
from gateway.config.checking.messages import spared_by, words_for
from gateway.config.models.gateway import GatewayConfig, RouteConfig
from gateway.config.models.methods import unknown_methods
from gateway.config.models.shorthand import Expanded, expand
from gateway.config.reading.merge import merge
from gateway.config.reading.node_findings import (
    shown_secrets,
    unwritten,
    without_extensions,
    without_secrets,
)
from gateway.config.reading.nodes import Node, find, node_of, plain, show_path
from gateway.config.reading.source import read
from gateway.config.reading.substitute import ReadSecret
from gateway.config.values.findings import KEY, Finding, Path
from gateway.config.values.places import from_file
from gateway.config.values.redaction import Secrets, redact_prose

MAX_MESSAGE: Final = 400
"""Quoted values may be of any length."""
MAX_HINT: Final = 2_000
"""A hint may be a command with long paths, which is useless when cut."""


class Inspection(NamedTuple):
    """Findings about the files that a configuration names.

    Attributes:
        problems: what keeps it from being run.
        warnings: problems that do not prevent a start.
    """

    problems: Sequence[Finding]
    warnings: Sequence[Finding]


Inspect = Callable[[GatewayConfig], Inspection]


class Source(NamedTuple):
    """A file: its name for messages, and its bytes."""

    file: str
    content: bytes


class Checked(NamedTuple):
    """A valid configuration.

    Attributes:
        config: the configuration.
        warnings: what is allowed but probably not intended.
        secrets: what must be hidden when parts of it are shown.
    """

    config: GatewayConfig
    warnings: tuple[Problem, ...]
    secrets: Secrets


def check(
    sources: Iterable[Source],
    environ: Mapping[str, str],
    read_secret: ReadSecret,
    model: type[GatewayConfig] = GatewayConfig,
    *,
    folder: FolderPath | None = None,
    inspect: Inspect | None = None,
) -> Checked:
    """Read and check a configuration of one or several files.

    Args:
        sources: the files, in the order in which they are merged.
        environ: the variables that `${VAR}` refers to.
        read_secret: returns the text of the file that `${file:...}` refers to.
        model: the model of the whole: a gateway, or `LimiterConfig` for users of the library.
        folder: the folder that relative paths start from; None for the working directory.
        inspect: checks the files that a valid configuration names.

    Raises:
        ConfigError: with all problems found, in order of position.
    """
    problems: list[Problem] = []
    roots: list[Node] = []
    order: dict[str, int] = {}
    secrets = Secrets()
    for file, content in sources:
        order[file] = len(order)
        root, found = read(file, content, environ, read_secret, secrets)
        problems += found
        if root is not None:
            roots.append(without_extensions(root))
    # The missing part may be in a file that could not be read.
    is_whole = len(roots) == len(order)
    config, warnings = None, list[Problem]()
    joined: Node | None = None
    if roots:
        joined, found = merge(roots)
        problems += found
        checker = _Checker(joined, model, is_whole=is_whole, folder=folder)
        config, wrong, warnings = checker.run(inspect)
        problems += wrong
        problems = problems or unwritten(joined)
    if problems or config is None:
        raise ConfigError(_in_order(problems, order, secrets))
    warnings = _in_order(warnings, order, secrets)
    if joined is not None:
        secrets.update(shown_secrets(joined))
    return Checked(config, tuple(warnings), secrets)


def check_text(
    text: str,
    *,
    file: str = "sluice.yaml",
    environ: Mapping[str, str] | None = None,
    model: type[GatewayConfig] = GatewayConfig,
) -> Checked:
    """Check a configuration given as text; it cannot refer to secret files.

    Raises:
        ConfigError: with all problems found.
    """

    def no_files(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    return check([Source(file, text.encode())], environ or {}, no_files, model)


def check_data(data: object, *, name: str, model: type[GatewayConfig] = GatewayConfig) -> Checked:
    """Check a configuration given as plain data; text in it is taken literally.

    Args:
        data: mappings, lists and scalars, as from YAML.
        name: its name in messages.
        model: as in `check`.

    Raises:
        ConfigError: with all problems found.
    """
    secrets = Secrets()
    config, problems, warnings = _Checker(node_of(data, name), model, is_whole=True).run()
    if problems or config is None:
        raise ConfigError(_in_order(problems, {}, secrets))
    return Checked(config, tuple(_in_order(warnings, {}, secrets)), secrets)


def _in_order(
    problems: Iterable[Problem], order: Mapping[str, int], secrets: Secrets
) -> list[Problem]:
    """Sort problems by position, remove secrets, and report one mistake per position."""
    problems = [
        replace(
            one,
            path=_showable(one.path, secrets),
            message=_showable(one.message, secrets),
            hint=_showable(one.hint, secrets, MAX_HINT),
        )
        for one in problems
    ]
    # Plain data has no lines: the path is the position, and problems keep their order.
    unique: dict[tuple[str, int | str, int, str], Problem] = {}
    for one in problems:
        unique.setdefault((one.file, one.line or one.path, one.column, one.message), one)

    def place(one: Problem) -> tuple[int, int, int, str]:
        message = one.message if one.line else ""
        return order.get(one.file, 0), one.line, one.column, message

    return sorted(unique.values(), key=place)


def _showable(text: str, secrets: Secrets, most: int = MAX_MESSAGE) -> str:
    text = redact_prose(secrets.hide(text))
    return text if len(text) <= most else f"{text[:most]}..."


class _Checker:
    """Check one merged tree."""

    def __init__(
        self,
        root: Node,
        model: type[GatewayConfig],
        *,
        is_whole: bool,
        folder: FolderPath | None = None,
    ) -> None:
        self.root = root
        self.context = from_file(folder)
        self.model = model
        self.is_whole = is_whole
        self.expanded: Expanded = expand(plain(root))

    def run(
        self, inspect: Inspect | None = None
    ) -> tuple[GatewayConfig | None, list[Problem], list[Problem]]:
        """Return the configuration if it is valid, its problems, and its warnings."""
        findings: list[Finding] = list(self.expanded.findings)
        config: GatewayConfig | None = None
        try:
            config = self.model.model_validate(self.expanded.data, context=self.context)
        except ValidationError as error:
            details = error.errors(include_url=False)
            spared = {path for one in details for path in spared_by(one)}
            news = [one for one in details if self._is_news(one) and one["loc"] not in spared]
            findings += [finding for one in news for finding in words_for(one)]
        if self.is_whole:
            findings += cross.references(self.expanded.data, self.expanded.limited)
            findings += unknown_methods(self.expanded.data)
        findings += cross.unreachable(self._valid_routes(config))
        if config is not None:
            findings += cross.address_conflicts(config)
            findings += cross.unfit_for_callers(config)
            findings += cross.unfit_for_requests(config)
            findings += cross.tried_on_listeners(config)
            findings += cross.unknown_movers(config)
            findings += cross.unknown_senders(config)
            findings += key_checks.conflicts(config)
            findings += list_checks.unknown_lists(config)
            findings += list_checks.conditions_on_listeners(config)
            findings += list_checks.tiers_that_are_not_kept(config)
            findings += list_checks.costs_on_listeners(config)
            findings += list_checks.costs_above_limits(config)
            findings += throttlex_checks.conflicts(config)
            findings += unsupported(config)
        wrong = [one for one in map(self._place, findings) if one]
        if config is None or wrong:
            return config, wrong, []
        odd = [
            *cross.warnings(config),
            *key_checks.warnings(config),
            *throttlex_checks.warnings(config),
            *list_checks.warnings(config),
            *condition_checks.warnings(config),
            *patterns(config, self.expanded.origins),
            *redirect_loops(config),
            *variables_of_responses(config),
            *fields_of_cors(config),
            *bodies_of_refusals(config),
            *foreign_variables(config),
        ]
        if inspect is not None:
            inspection = inspect(config)
            wrong = [one for one in map(self._place, inspection.problems) if one]
            odd += inspection.warnings
        return config, wrong, [one for one in map(self._place, odd) if one]

    def _is_news(self, error: ErrorDetails) -> bool:
        """Return whether an error adds to what is known about the parts that could not be read."""
        path = error["loc"]
        if error["type"] in {"missing", "too_short"} and not self.is_whole:
            return False
        if error["type"] == "missing":
            # The keys that replace an upstream may be there as well, and not have been read.
            own = ("redirect", "respond") if path[-1] == "upstream" else ()
            wanted = [path, *((*path[:-1], name) for name in own)]
            if any(find(self.root, self._origin(one)).is_broken for one in wanted):
                return False
        if error["type"] == "too_short" and error["input"]:
            return False  # Not empty: its content is wrong.
        # A name made from a pattern is wrong only if the pattern is.
        return (*path,) not in self.expanded.origins or path[-1:] != ("name",)

    def _valid_routes(self, config: GatewayConfig | None) -> list[tuple[int, RouteConfig]]:
        if config is not None:
            routes = list(enumerate(config.routes))
        else:
            data: Any = self.expanded.data
            written = data.get("routes") if isinstance(data, Mapping) else None
            routes = []
            for index, route in enumerate(written if isinstance(written, list) else []):
                try:
                    routes.append((index, RouteConfig.model_validate(route, context=self.context)))
                except ValidationError:
                    continue
        broken = {finding.path[:2] for finding in self.expanded.findings}
        return [(i, route) for i, route in routes if self._origin(("routes", i))[:2] not in broken]

    def _origin(self, path: Path) -> Path:
        """Return the path under which a part of the long form was written."""
        for end in range(len(path), 0, -1):
            origin = self.expanded.origins.get(path[:end])
            if origin is not None:
                return (*origin, *path[end:])
        return path

    def _place(self, finding: Finding) -> Problem | None:
        """Return the problem with its position; None if it follows from a known one."""
        path = self._origin(finding.path)
        found = find(self.root, path)
        if found.is_broken:
            return None
        place = found.key if path[-1:] == (KEY,) and found.place != self.root.place else found.place
        if finding.column and getattr(found.node, "is_verbatim", False):
            place = place._replace(column=place.column + finding.column - 1)
        message, hint = finding.message, finding.hint
        if path[-1:] != (KEY,):
            message, hint = without_secrets(found.node, path, message, hint)
        return place.problem(message, hint, show_path(found.path))
