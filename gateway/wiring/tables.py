"""Tables of clients and their tiers, and how their files are read."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.base.clock import pause
from gateway.base.errors import UnusableFileError
from gateway.config.models.policies import PolicyConfig
from gateway.config.reading.nodes import plain
from gateway.config.reading.source import read
from gateway.config.values.redaction import Secrets
from gateway.routing.tiers import TierTable
from gateway.routing.value_set import ValueTable
from gateway.wiring.file_source import FileSource, lines_of
from gateway.wiring.lists import read_value

_YAML: Final = (".yaml", ".yml")
_COLUMNS: Final = 2


class TableSource(FileSource):
    """The file of clients and their tiers of one policy.

    Args:
        policy: the policy, which has such a file.

    Attributes:
        made_from: the parts of the policy that it was made from.
        content: the table, for requests; empty until it is loaded.
    """

    def __init__(self, policy: PolicyConfig) -> None:
        assert policy.tier is not None
        super().__init__(policy.tier.file)
        self._word = policy.tier.per
        self._names = tuple(policy.tiers)
        self.made_from = (policy.tier, self._names)
        self.content = TierTable(self._names, ValueTable(()))

    def _read(self) -> None:
        path = self.paths[0]
        is_yaml = path.suffix in _YAML
        rows = _yaml_rows(path) if is_yaml else _csv_rows(path)
        try:
            self.content.content = ValueTable(self._numbered(rows), pause)
        except ValueError as error:
            message = f"{path}: the client {error.args[0]!r} has two tiers"
            raise UnusableFileError(message, "remove one of the lines") from None

    def _numbered(self, rows: Iterator[tuple[str, Sequence[object]]]) -> Iterator[tuple[str, int]]:
        numbers = {name: number for number, name in enumerate(self._names)}
        for place, row in rows:
            if len(row) != _COLUMNS or not all(isinstance(one, str) and one for one in row):
                raise UnusableFileError(f"{place}a client and its tier were expected")
            client, tier = map(str, row)
            number = numbers.get(tier)
            if number is None:
                hint = f"the tiers are {', '.join(self._names)}"
                raise UnusableFileError(f"{place}there is no tier {tier!r}", hint)
            yield read_value(self._word, client, place), number


def _csv_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    numbers = [0]

    def texts() -> Iterator[str]:
        for number, line in lines_of(path):
            numbers[0] = number
            yield "" if line.lstrip().startswith("#") else line

    try:
        for row in csv.reader(texts(), strict=True, skipinitialspace=True):
            if row:
                yield f"{path}, line {numbers[0]}: ", [one.strip() for one in row]
    except csv.Error as error:
        raise UnusableFileError(f"{path}, line {numbers[0]}: {error}") from None


def _yaml_rows(path: Path) -> Iterator[tuple[str, list[object]]]:
    content = "".join(line for _, line in lines_of(path))
    text = content.encode("utf-8", "surrogateescape")
    root, problems = read(path.name, text, None, str, Secrets())
    for problem in problems:
        raise UnusableFileError(f"{path}, line {problem.line}: {problem.message}", problem.hint)
    found = {} if root is None else plain(root)
    if not isinstance(found, Mapping):
        raise UnusableFileError(f"{path}: a mapping of clients to tiers was expected")
    for client, tier in found.items():
        yield f"{path}, {client!r}: ", [str(client) if isinstance(client, int) else client, tier]
