"""Who may use a route at all, whatever the limits."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.errors import BadRequestError
from gateway.routing.lists import RequestList
from gateway.routing.request_view import RequestView


class Access:
    """The clients that a route serves.

    Args:
        denied: lists of those that it does not serve.
        allowed: lists of the only ones that it serves; None for all others.
    """

    __slots__ = ("_allowed", "_denied")

    def __init__(
        self, denied: Sequence[RequestList], allowed: Sequence[RequestList] | None
    ) -> None:
        self._denied = tuple(denied)
        self._allowed = None if allowed is None else tuple(allowed)

    def check(self, request: RequestView) -> None:
        """Let a request pass, or not.

        Raises:
            BadRequestError: it may not pass.
        """
        for each in self._denied:
            if each.may_have(request):
                raise forbidden()
        if self._allowed is not None and not any(each.has(request) for each in self._allowed):
            raise forbidden()


def forbidden() -> BadRequestError:
    """Return the error of a client that may not do what it asks for, whatever the limits."""
    return BadRequestError("This client may not use this", 403, kind="denied")
