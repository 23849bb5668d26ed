"""The lists of a configuration, and the files that they are read from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from gateway.base.clock import pause
from gateway.base.errors import BadRequestError, StartError, UnusableFileError
from gateway.base.regular import open_regular
from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.lists import ListConfig
from gateway.config.values.address import AddressError, parse_network
from gateway.config.values.findings import Finding
from gateway.net.network_text import add_usual
from gateway.routing.lists import AddressList, RequestList, ValueList
from gateway.routing.networks import NetworkList, NetworkSet
from gateway.routing.value_set import MAX_VALUE, ValueSet
from gateway.routing.values import as_read

INTERVAL_S: Final = 1.0
"""How often files are looked at."""
MAX_LINES: Final = 1_100_000
"""A million entries, and comments."""
MAX_BYTES: Final = 128 * 1024 * 1024
_SHORTER: Final = "join neighbouring networks, or use several lists"
_BATCH: Final = 512
"""Lines that are read between two pauses."""

_Signature = tuple[int, int, int] | None
"""The inode, size and time of change of a file; None if it is not there."""


class ListSource:
    """A list of the configuration.

    Args:
        config: the list.

    Attributes:
        content: the list, for requests; empty until it is loaded.
        paths: its file, if it has one.
    """

    def __init__(self, config: ListConfig) -> None:
        self.config = config
        self.content: AddressList | ValueList
        if config.per == "ip":
            self.content = AddressList(NetworkSet(NetworkList()))
        else:
            self.content = ValueList(config.per, ValueSet(()))
        self.paths = () if config.file is None else (config.file,)
        self.is_loaded = False
        self._used: _Signature = None
        self._seen: _Signature = None

    def load(self) -> None:
        """Read it; blocks.

        Raises:
            UnusableFileError: its file cannot be used.
        """
        self._used = self._seen = self._look()
        self._read()
        self.is_loaded = True

    def renew(self) -> bool:
        """See `Renewable`. A file that still changes is not read: it may be half written."""
        found = self._look()
        is_settled = found == self._seen
        self._seen = found
        if not is_settled or found == self._used:
            return False
        self._used = found
        self._read()
        return True

    def _look(self) -> _Signature:
        with suppress(OSError):
            for path in self.paths:
                found = path.stat()
                return found.st_ino, found.st_size, found.st_mtime_ns
        return None

    def _read(self) -> None:
        content = self.content
        if isinstance(content, AddressList):
            content.content = _networks(self.config)
        else:
            content.content = _values(self.config)


def lists_of(
    config: GatewayConfig, predecessor: Mapping[str, ListSource] | None = None
) -> dict[str, ListSource]:
    """Return the lists of a configuration by name; those that are new are not loaded yet.

    Args:
        config: the checked, complete configuration.
        predecessor: those of the configuration before, which are used again where nothing has
            changed.
    """
    before = predecessor or {}
    return {
        name: before[name] if name in before and before[name].config == one else ListSource(one)
        for name, one in config.lists.items()
    }


def contents(lists: Mapping[str, ListSource]) -> dict[str, RequestList]:
    """Return lists as requests are looked up in them."""
    return {name: one.content for name, one in lists.items()}


def load_lists(lists: Mapping[str, ListSource]) -> None:
    """Read those that are not loaded yet; blocks.

    Raises:
        StartError: a file cannot be used.
    """
    for name, one in lists.items():
        if not one.is_loaded:
            try:
                one.load()
            except UnusableFileError as error:
                raise StartError(f"lists.{name}.file", error.message, error.hint) from error


def list_problems(config: GatewayConfig) -> Iterator[Finding]:
    """Return what is wrong with the files of lists; blocks."""
    for name, one in config.lists.items():
        try:
            ListSource(one).load()
        except UnusableFileError as error:
            yield Finding(("lists", name, "file"), error.message, error.hint)


def _networks(config: ListConfig) -> NetworkSet:
    found = NetworkList(map(parse_network, config.values))
    for number, line in _lines(config):
        text = line.partition("#")[0].partition(";")[0].strip()
        if not text:
            continue
        if not add_usual(found, text):
            try:
                network = parse_network(text)
            except AddressError as error:
                message = f"{config.file}, line {number}: {error.message}"
                raise UnusableFileError(message, error.hint) from None
            found.add(network.network_address, network.prefixlen)
    return NetworkSet(found, pause)


def _values(config: ListConfig) -> ValueSet:
    found = [_as_read(config, value, 0) for value in config.values]
    for number, line in _lines(config):
        text = line.strip()
        if text and not text.startswith("#"):
            found.append(_as_read(config, text, number))
    return ValueSet(found, pause)


def _as_read(config: ListConfig, value: str, number: int) -> str:
    place = f"{config.file}, line {number}: " if number else ""
    if len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE:
        raise UnusableFileError(f"{place}the value is longer than {MAX_VALUE} bytes")
    try:
        return as_read(config.per, value)
    except BadRequestError as error:
        raise UnusableFileError(f"{place}{error.title}") from None


def _lines(config: ListConfig) -> Iterator[tuple[int, str]]:
    """Yield the lines of a list's file, with their numbers.

    Raises:
        UnusableFileError: it cannot be read.
    """
    file = config.file
    if file is None:
        return
    try:
        with open_regular(file) as stream:
            if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                raise UnusableFileError(f"{file} is larger than {MAX_BYTES} bytes", _SHORTER)
            for number, line in enumerate(stream, 1):
                if number > MAX_LINES:
                    raise UnusableFileError(f"{file} has more than {MAX_LINES} lines", _SHORTER)
                if number % _BATCH == 0:
                    pause()
                text = line.decode("utf-8", "surrogateescape")
                yield number, text.removeprefix("\ufeff") if number == 1 else text
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror or error}"
        raise UnusableFileError(message) from None
