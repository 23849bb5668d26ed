"""Lists of addresses or values, and how their files are read."""

from __future__ import annotations

from gateway.base.clock import pause
from gateway.base.errors import BadRequestError, UnusableFileError
from gateway.config.models.lists import ListConfig
from gateway.config.values.address import AddressError, parse_network
from gateway.limits.key_words import PLACE_KEYS
from gateway.net.network_text import add_usual
from gateway.routing.lists import AddressList, ValueList
from gateway.routing.networks import NetworkList, NetworkSet
from gateway.routing.places import EXAMPLES, PLACES, read_place
from gateway.routing.value_set import MAX_VALUE, ValueSet
from gateway.routing.values import Read, as_read
from gateway.wiring.file_source import FileSource, lines_of


class ListSource(FileSource):
    """A list of the configuration.

    Args:
        config: the list.
        read: what finds the value of a request, unless the key does.

    Attributes:
        made_from: both.
        content: the list, for requests; empty until it is loaded.
    """

    def __init__(self, config: ListConfig, read: Read | None = None) -> None:
        super().__init__(config.file)
        self.made_from = (config, read)
        self._config = config
        self.content: AddressList | ValueList
        if config.per == "ip":
            self.content = AddressList(NetworkSet(NetworkList()))
        else:
            self.content = ValueList(config.per, ValueSet(()), read)

    def _read(self) -> None:
        content = self.content
        if isinstance(content, AddressList):
            content.content = _networks(self._config)
        else:
            content.content = _values(self._config)


def _networks(config: ListConfig) -> NetworkSet:
    found = NetworkList(map(parse_network, config.values))
    for number, line in lines_of(config.file):
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
    found = [read_value(config.per, value, "") for value in config.values]
    for number, line in lines_of(config.file):
        text = line.strip()
        if text and not text.startswith("#"):
            found.append(read_value(config.per, text, f"{config.file}, line {number}: "))
    return ValueSet(found, pause)


def read_value(word: str, value: str, place: str) -> str:
    """Return a value as requests are read.

    Args:
        word: the key word whose value it is.
        value: as written.
        place: where, for messages.

    Raises:
        UnusableFileError: it is not valid.
    """
    if len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE:
        raise UnusableFileError(f"{place}the value is longer than {MAX_VALUE} bytes")
    if word in PLACE_KEYS:
        found = read_place(word, value)
        if found is None:
            raise UnusableFileError(f"{place}{value!r} is not {PLACES[word]}", EXAMPLES[word])
        return found
    try:
        return as_read(word, value)
    except BadRequestError as error:
        raise UnusableFileError(f"{place}{error.title}") from None
