"""Builds what listeners do with new connections, and TLS, from a checked configuration."""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from gateway.base.errors import StartError
from gateway.config.models.gateway import GatewayConfig, ListenerConfig
from gateway.config.values.address import Address, UnixAddress
from gateway.net.start_errors import cannot_use
from gateway.net.tls.client import UpstreamTls
from gateway.net.tls.files import TlsFileError
from gateway.net.tls.server import ServerTls
from gateway.net.tls.texts import TlsTexts
from gateway.proxy.client.handler import ListenerRules
from gateway.proxy.client.listener import AcceptPlan
from gateway.proxy.http2.framing import IS_AVAILABLE, LIBRARY
from gateway.routing.client_address import ClientAddress
from gateway.wiring.certificates import (
    frontend_tls,
    server_tls,
    server_tls_http1,
    upstream_tls,
    upstream_tls_http2,
)

log = logging.getLogger(__name__)

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
    """

    listeners: tuple[ServerTls | None, ...]
    upstreams: dict[str, UpstreamTls]
    frontends: tuple[TlsTexts | None, ...]
    made_from: Mapping[MadeFrom, ServerTls | TlsTexts | UpstreamTls]

    @property
    def shown(self) -> list[ServerTls | TlsTexts]:
        """TLS of listeners: the certificates shown to clients."""
        return [one for one in (*self.listeners, *self.frontends) if one is not None]

    @property
    def all(self) -> list[ServerTls | TlsTexts | UpstreamTls]:
        """All of them."""
        return [*self.shown, *self.upstreams.values()]

    def load(self) -> None:
        """Read the files of those that are new; blocks.

        Raises:
            StartError: a file cannot be used.
        """
        for index, one in enumerate(self.listeners):
            path = "listen.tls" if len(self.listeners) == 1 else f"listen[{index}].tls"
            _load(one, path)
        for name, other in self.upstreams.items():
            _load(other, f"upstreams.{name}.tls")
        for index, texts in enumerate(self.frontends):
            _load(texts, f"listeners[{index}].tls")


def _load(tls: ServerTls | TlsTexts | UpstreamTls | None, path: str) -> None:
    if tls is None or tls.is_loaded:
        return
    try:
        tls.load()
    except TlsFileError as error:
        raise cannot_use(path, error) from error


def certificates_of(
    config: GatewayConfig, *, has_frontends: bool, predecessor: Certificates | None = None
) -> Certificates:
    """Return the certificates of the configuration; those that are new are not loaded yet.

    Args:
        config: the checked, complete configuration.
        has_frontends: whether this process serves the clients of other systems.
        predecessor: those of the configuration before, which are used again where nothing has
            changed.
    """
    frontends = config.listeners if has_frontends else ()
    kept = predecessor.made_from if predecessor is not None else {}
    made_from: dict[MadeFrom, ServerTls | TlsTexts | UpstreamTls] = {}

    def once(make: Callable[[Any], Tls], tls: Any, place: object = None) -> Tls:
        name = (make.__name__, tls, place)
        found = kept.get(name)
        made_from[name] = made = make(tls) if found is None else cast("Tls", found)
        return made

    return Certificates(
        tuple(
            None
            if one.tls is None
            else once(server_tls if offers_http2(one) else server_tls_http1, one.tls, one.address)
            for one in config.listen
        ),
        {
            name: once(upstream_tls_http2 if upstream.http2 else upstream_tls, upstream.tls, name)
            for name, upstream in config.upstreams.items()
            if any(target.scheme == "https" for target in upstream.targets)
        },
        tuple(
            None if one.tls is None else once(frontend_tls, one.tls, one.address)
            for one in frontends
        ),
        made_from,
    )


def offers_http2(listener: ListenerConfig) -> bool:
    """Return whether clients of a listener may speak HTTP/2."""
    return listener.speaks_http2 and IS_AVAILABLE


def check_http2(config: GatewayConfig, *, is_available: bool = IS_AVAILABLE) -> None:
    """Say so if HTTP/2 cannot be spoken because its library is missing.

    Raises:
        StartError: an upstream wants it, or a listener without TLS, whose clients know that they
            may speak it.
    """
    asking = [one for one in config.listen if one.speaks_http2]
    upstream = next((name for name, one in config.upstreams.items() if one.http2), None)
    if is_available or not (asking or upstream):
        return
    hint = f"install its library: {shlex.quote(sys.executable)} -m pip install {LIBRARY}"
    for number, listener in enumerate(config.listen):
        if listener.speaks_http2 and listener.tls is None:
            path = "listen.http2" if len(config.listen) == 1 else f"listen[{number}].http2"
            raise StartError(path, "HTTP/2 is not available here", hint)
    if upstream is not None:
        raise StartError(f"upstreams.{upstream}.http2", "HTTP/2 is not available here", hint)
    log.warning("Clients are offered HTTP/1.1 only: HTTP/2 is not available; %s", hint)


def rules_of(listener: ListenerConfig, config: GatewayConfig) -> ListenerRules:
    """Return what the connections of a listener do not share with those of others."""
    own = _port(listener)
    foreign = {
        _port(other)
        for other in config.listen
        if other.tls is not None
        and listener.tls is not None
        and other.tls.client_rules != listener.tls.client_rules
    }
    return ListenerRules(
        listener.redirect_to_https or 0, offers_http2(listener), frozenset(foreign - {own, 0})
    )


def _port(listener: ListenerConfig) -> int:
    address = listener.address
    return address.port if isinstance(address, Address) else 0


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
