"""Builds what listeners do with new connections, and TLS, from a checked configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from gateway.config.models.gateway import GatewayConfig, ListenerConfig
from gateway.config.values.address import UnixAddress
from gateway.net.start_errors import cannot_use
from gateway.net.tls.client import UpstreamTls
from gateway.net.tls.files import TlsFileError
from gateway.net.tls.server import ServerTls
from gateway.net.tls.texts import TlsTexts
from gateway.proxy.client.listener import AcceptPlan
from gateway.routing.client_address import ClientAddress
from gateway.wiring.certificates import frontend_tls, server_tls, upstream_tls

ANY_PREFIX: Final = 64
"""Trust in senders of PROXY headers is per address, so no IPv6 prefix applies."""


MadeFrom = tuple[str, object, object]
"""What makes it, from which section of the configuration, and where that is."""
Tls = TypeVar("Tls", ServerTls, TlsTexts, UpstreamTls)


class Certificates(NamedTuple):
    """All objects made from certificates.

    Attributes:
        listeners: TLS of each listener, in the order of the configuration; None for plain ones.
        upstreams: TLS to upstreams that have targets with `https://`, by name.
        frontends: TLS of the listeners for other systems' clients; empty if another process serves
            them.
        made_from: all of them, by what they were made from.
        loaded: which of them, by `id`, are in use already and need not be loaded.
    """

    listeners: tuple[ServerTls | None, ...]
    upstreams: dict[str, UpstreamTls]
    frontends: tuple[TlsTexts | None, ...]
    made_from: Mapping[MadeFrom, ServerTls | TlsTexts | UpstreamTls]
    loaded: frozenset[int]

    @property
    def shown(self) -> list[ServerTls | TlsTexts]:
        """TLS of listeners: the certificates shown to clients."""
        return [one for one in (*self.listeners, *self.frontends) if one is not None]

    @property
    def all(self) -> list[ServerTls | TlsTexts | UpstreamTls]:
        """All of them."""
        return [*self.shown, *self.upstreams.values()]

    def load(self) -> None:
        """Read every file; blocks.

        Raises:
            StartError: a file cannot be used.
        """
        for index, one in enumerate(self.listeners):
            path = "listen.tls" if len(self.listeners) == 1 else f"listen[{index}].tls"
            self._load(one, path)
        for name, other in self.upstreams.items():
            self._load(other, f"upstreams.{name}.tls")
        for index, texts in enumerate(self.frontends):
            self._load(texts, f"listeners[{index}].tls")

    def _load(self, tls: ServerTls | TlsTexts | UpstreamTls | None, path: str) -> None:
        if tls is not None and id(tls) not in self.loaded:
            _load(tls, path)


def _load(tls: ServerTls | TlsTexts | UpstreamTls, path: str) -> None:
    try:
        tls.load()
    except TlsFileError as error:
        raise cannot_use(path, error) from error


def certificates_of(
    config: GatewayConfig, *, has_frontends: bool, elder: Certificates | None = None
) -> Certificates:
    """Return the certificates of the configuration; those that are new are not loaded yet.

    Args:
        config: the checked, complete configuration.
        has_frontends: whether this process serves the clients of other systems.
        elder: those of the configuration before; each is used again where nothing has changed.
    """
    frontends = config.listeners if has_frontends else ()
    kept = elder.made_from if elder is not None else {}
    made_from: dict[MadeFrom, ServerTls | TlsTexts | UpstreamTls] = {}

    def once(make: Callable[[Any], Tls], tls: Any, place: object = None) -> Tls:
        name = (make.__name__, tls, place)
        found = kept.get(name)
        made_from[name] = made = make(tls) if found is None else cast("Tls", found)
        return made

    return Certificates(
        tuple(
            None if one.tls is None else once(server_tls, one.tls, one.address)
            for one in config.listen
        ),
        {
            name: once(upstream_tls, upstream.tls, name)
            for name, upstream in config.upstreams.items()
            if any(target.scheme == "https" for target in upstream.targets)
        },
        tuple(
            None if one.tls is None else once(frontend_tls, one.tls, one.address)
            for one in frontends
        ),
        made_from,
        frozenset(id(one) for one in kept.values()),
    )


def accept_plan_of(
    listener: ListenerConfig, config: GatewayConfig, tls: ServerTls | None
) -> AcceptPlan:
    """Return how a listener accepts new connections."""
    senders = None
    if listener.proxy_protocol:
        said = listener.proxy_protocol
        networks = said if isinstance(said, tuple) else config.trusted_proxies
        senders = ClientAddress(networks, ANY_PREFIX)
    fields: tuple[tuple[str, str], ...] = ()
    if listener.tls is not None and listener.tls.client_headers is not None:
        fields = tuple(listener.tls.client_headers.by_detail.items())
    return AcceptPlan(
        tls=tls,
        senders=senders,
        is_local=isinstance(listener.address, UnixAddress),
        fields=fields,
    )
