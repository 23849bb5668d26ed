"""Named lists of addresses, or of values of a key, and which requests are in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.base.errors import BadRequestError
from gateway.routing.networks import NetworkList, NetworkSet
from gateway.routing.request_view import RequestView
from gateway.routing.sender import Member
from gateway.routing.value_set import ValueSet
from gateway.routing.values import Ambiguity, Read, compile_read


class RequestList(Protocol):
    """A list of addresses or values."""

    def may_have(self, request: RequestView) -> bool:
        """Return whether any of the request's addresses or values is in the list.

        Raises:
            BadRequestError: it is ambiguous which it has.
        """

    def has(self, request: RequestView) -> bool:
        """Return whether all that the request could be counted by is in the list."""


class AddressList:
    """A list of networks.

    Args:
        content: the networks; replaced when they change.
    """

    __slots__ = ("content",)

    def __init__(self, content: NetworkSet) -> None:
        self.content = content

    def may_have(self, request: RequestView) -> bool:
        """See `RequestList`."""
        return request.client in self.content

    def has(self, request: RequestView) -> bool:
        """See `RequestList`."""
        return request.client in self.content


class ValueList:
    """A list of values of a header, cookie, query parameter or certificate, or of places.

    Args:
        word: the key word, such as `header:x-api-key`.
        content: the values; replaced when they change.
        read: reads the value of a request; by default, what the word names.

    Raises:
        ValueError: the word does not name a value.
    """

    __slots__ = ("_read", "_word", "content")

    def __init__(self, word: str, content: ValueSet, read: Read | None = None) -> None:
        self._word = word
        self._read = compile_read(word) if read is None else read
        self.content = content

    def may_have(self, request: RequestView) -> bool:
        """See `RequestList`."""
        found = self._read(request)
        if isinstance(found, Ambiguity):
            title = f"The request has several values of what it is judged by: {self._word}"
            raise BadRequestError(title, kind="key")
        values = found if isinstance(found, list) else [found or ""]
        return any(value in self.content for value in values if value)

    def has(self, request: RequestView) -> bool:
        """See `RequestList`."""
        found = self._read(request)
        if not found or isinstance(found, Ambiguity):
            return False
        values = found if isinstance(found, list) else [found]
        return all(value in self.content for value in values)


Lists = Mapping[str, RequestList]
"""Lists by name."""


def compile_members(members: Sequence[Member], lists: Lists) -> list[RequestList]:
    """Return networks and names of lists as lists."""
    named = [lists[one] for one in members if isinstance(one, str)]
    networks = NetworkList(one for one in members if not isinstance(one, str))
    return [AddressList(NetworkSet(networks)), *named] if len(networks) else named
