"""The files of lists, tables and databases that a configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath

from gateway.base.errors import StartError, UnusableFileError
from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.findings import Finding, Path
from gateway.routing.keys import Readers
from gateway.routing.lists import RequestList
from gateway.wiring.file_source import FileSource
from gateway.wiring.geoip import GeoipSource, geoip_sources, is_readable
from gateway.wiring.lists import ListSource
from gateway.wiring.tables import TableSource


class Sources:
    """The lists, tables and databases of a configuration; those new are not loaded yet.

    Args:
        config: the checked, complete configuration; None for nothing.
        predecessor: those of the configuration before, which are used again where nothing has
            changed.

    Attributes:
        lists: by name.
        tables: those of clients and their tiers, by the policy's name.
        places: the databases of addresses, by the key that they give.
        readers: what reads these keys.
        contents: the lists, as requests are looked up in them.
    """

    def __init__(
        self, config: GatewayConfig | None = None, predecessor: Sources | None = None
    ) -> None:
        self.lists: dict[str, ListSource] = {}
        self.tables: dict[str, TableSource] = {}
        self.places: dict[str, GeoipSource] = {}
        for word, place in geoip_sources(config).items() if config is not None else ():
            had = predecessor.places.get(word) if predecessor is not None else None
            self.places[word] = had if had is not None and had.paths == place.paths else place
        self.readers: Readers = {word: one.reader for word, one in self.places.items()}
        for name, one in config.lists.items() if config is not None else ():
            of_place = self.places.get(one.per)
            new = ListSource(one, None if of_place is None else of_place.read)
            old = predecessor.lists.get(name) if predecessor is not None else None
            is_same = old is not None and old.made_from == new.made_from
            self.lists[name] = old if old is not None and is_same else new
        for name, policy in config.policies.items() if config is not None else ():
            if policy.tier is None or policy.tier.file is None:
                continue
            table = TableSource(policy)
            known = predecessor.tables.get(name) if predecessor is not None else None
            is_same = known is not None and known.made_from == table.made_from
            self.tables[name] = known if known is not None and is_same else table
        self.contents: dict[str, RequestList] = {
            name: one.content for name, one in self.lists.items()
        }

    @property
    def all(self) -> list[FileSource]:
        """Return all of them."""
        return [*self.lists.values(), *self.tables.values(), *self.places.values()]

    def load(self) -> None:
        """Read those that are not loaded yet; blocks.

        Raises:
            StartError: a file cannot be used, or the library that reads it is not installed.
        """
        for path, one in self.named():
            if not one.is_loaded:
                try:
                    one.load()
                except UnusableFileError as error:
                    key = ".".join(map(str, path))
                    raise StartError(key, error.message, error.hint) from error

    def named(self) -> Iterator[tuple[Path, FileSource]]:
        """Yield all of them, and the keys that name their files."""
        for name, one in self.lists.items():
            yield ("lists", name, "file"), one
        for name, table in self.tables.items():
            yield ("policies", name, "tier", "file"), table
        for word, database in self.places.items():
            yield ("geoip", word), database


def files_of_sources(config: GatewayConfig) -> list[FilePath]:
    """Return the files of lists and tables."""
    return [file for _, one in Sources(config).named() for file in one.paths]


def source_problems(config: GatewayConfig) -> Iterator[Finding]:
    """Return what is wrong with the files; blocks."""
    for path, one in Sources(config).named():
        if isinstance(one, GeoipSource) and not is_readable():
            # It may be where the gateway runs.
            continue
        try:
            one.load()
        except UnusableFileError as error:
            yield Finding(path, error.message, error.hint)
