"""Databases of the places that addresses belong to, in MaxMind's format.

They are read into memory as a whole and looked up by the library's reader in Python, in which no
damaged file can do more than raise an error. Its reader in C takes 2.5 us in place of 30 to 50, but
maps the file: one that is written over in place, as `cp` does, would end the gateway with SIGBUS.
"""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from ipaddress import IPv4Address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.errors import StartError, UnusableFileError
from gateway.base.install_hint import install_hint
from gateway.base.regular import open_regular
from gateway.config.checking.key_checks import places_of
from gateway.config.models.gateway import GatewayConfig
from gateway.routing.client_address import address_in
from gateway.routing.places import AddressPlaces, asn_of, compile_place, country_of
from gateway.routing.values import Read
from gateway.wiring.file_source import FileSource

if TYPE_CHECKING:
    from maxminddb import Reader

log = logging.getLogger(__name__)

LIBRARY: Final = "maxminddb"
MAX_BYTES: Final = 256 * 1024 * 1024
"""The largest file: databases of countries or networks have 10 MB, of cities up to 130."""
CACHE: Final = 16_384
"""Addresses that are remembered."""
IPV6: Final = 6

_TYPES: Final[Mapping[str, str]] = {
    "country": "country|city|enterprise",
    "asn": "asn|isp|enterprise",
}
"""Words in the types of databases that have what each key needs."""
_EXAMPLES: Final = {"country": "GeoLite2-Country.mmdb", "asn": "GeoLite2-ASN.mmdb"}
_VALUES: Final[Mapping[str, Callable[[object], str]]] = {"country": country_of, "asn": asn_of}

_DAMAGE: Final = (
    RuntimeError,  # the library's own error, and RecursionError
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What the library raises for a file that is not as it should be."""


class GeoipSource(FileSource):
    """A database of the configuration.

    Args:
        word: the key that it is for: `country` or `asn`.
        file: the database.

    Attributes:
        content: the values by address.
        read: reads the value of a request; until the database is loaded, none has one.
    """

    def __init__(self, word: str, file: Path) -> None:
        super().__init__(file)
        self._word = word
        self.content = AddressPlaces()
        self.read: Read = compile_place(self.content)

    def reader(self, _name: str) -> Read:
        """Return `read`: its key has no name."""
        return self.read

    def _read(self) -> None:
        """Read the database.

        Raises:
            StartError: the library is not installed.
            UnusableFileError: the file is not such a database.
        """
        (path,) = self.paths
        opened = _open(path, self._word)
        self.content.find = lru_cache(CACHE)(_Finder(opened, self._word, path))


class _Finder:
    """Looks addresses up, in 30 to 50 us; see `AddressPlaces.find`."""

    def __init__(self, reader: Reader, word: str, path: Path) -> None:
        self._reader = reader
        self._value_of = _VALUES[word]
        self._path = path
        self._has_v6 = reader.metadata().ip_version == IPV6
        self._is_damaged = False

    def __call__(self, text: str) -> str:
        address = address_in(text)
        if address is None or not (self._has_v6 or isinstance(address, IPv4Address)):
            return ""
        try:
            return self._value_of(self._reader.get(address))
        except _DAMAGE as error:
            if not self._is_damaged:
                self._is_damaged = True
                log.warning("%s is damaged, so some addresses are not found: %s", self._path, error)
            return ""


def geoip_sources(config: GatewayConfig) -> dict[str, GeoipSource]:
    """Return the databases that limits, tiers and lists need, by their key; not loaded yet."""
    files = config.geoip.files if config.geoip is not None else {}
    needed = [word for word in places_of(config) if word in files]
    return {word: GeoipSource(word, files[word]) for word in needed}


def is_readable() -> bool:
    """Return whether the library that reads databases is installed."""
    return find_spec(LIBRARY) is not None


def require_reader(config: GatewayConfig) -> None:
    """Raise `StartError` if a database is to be read, and the library is not installed."""
    if geoip_sources(config) and not is_readable():
        raise _missing()


def _missing() -> StartError:
    message = f"reading databases of addresses needs a library that is not installed: {LIBRARY}"
    return StartError("geoip", message, install_hint("geoip"))


def _open(path: Path, word: str) -> Reader:
    try:
        import maxminddb
    except ImportError as error:
        raise _missing() from error
    content = _content(path)
    try:
        reader = maxminddb.open_database(io.BytesIO(content), maxminddb.MODE_FD)
        kind = str(reader.metadata().database_type)
        # It finds the first tree of a file that has another size than it says.
        reader.get("192.0.2.1")
    except _DAMAGE as error:
        message = f"{path} is not a database in MaxMind's format, or is damaged"
        raise UnusableFileError(message, "download it again, as an .mmdb file") from error
    if not re.search(_TYPES[word], kind, re.IGNORECASE):
        message = f"{path} is a database of another type: {kind}"
        raise UnusableFileError(message, f"for {word}, use one such as {_EXAMPLES[word]}")
    return reader


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as stream:
            if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                message = f"{path} is larger than {MAX_BYTES} bytes"
                raise UnusableFileError(message, "use a database of countries, not of cities")
            return stream.read(MAX_BYTES)
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise UnusableFileError(message) from None
