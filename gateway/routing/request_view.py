"""A request as routes, keys and templates see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gateway.routing.fields import Fields


class CertificateView(Protocol):
    """The identity that a client's certificate proves."""

    @property
    def subject(self) -> str:
        """Its distinguished name."""

    @property
    def san(self) -> str:
        """Its alternative names."""

    @property
    def fingerprint(self) -> str:
        """The hash of the whole certificate."""


class RequestView(Protocol):
    """The parts of a request that keys are made from."""

    @property
    def client(self) -> str:
        """The client's address; other text if it has none."""

    @property
    def is_from_proxy(self) -> bool:
        """Whether a trusted proxy has sent it."""

    @property
    def client_key(self) -> str:
        """The client's address as `ClientAddress.bucket` returns it."""

    @property
    def host(self) -> str:
        """The host as `normal_host` returns it."""

    @property
    def method(self) -> str:
        """The method as it was sent."""

    @property
    def path(self) -> str:
        """The path as it was sent."""

    @property
    def query(self) -> str:
        """The query as it was sent, without the question mark."""

    @property
    def headers(self) -> Fields:
        """Header fields."""

    @property
    def client_certificate(self) -> CertificateView | None:
        """The client's certificate, if it presented one that was verified."""


Condition = Callable[[RequestView], bool]
"""Returns whether a request meets a condition."""
