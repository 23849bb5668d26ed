"""Starts the admin listener of a gateway that is one process."""

from __future__ import annotations

from gateway.admin.api import AdminServer
from gateway.admin.reloading import Reloadable
from gateway.admin.resources import Subject
from gateway.config.models.gateway import GatewayConfig
from gateway.net.binding import Sharing, bound_everywhere
from gateway.net.start_errors import ADMIN, cannot_listen


async def start_admin(
    config: GatewayConfig, subject: Subject, reloadable: Reloadable | None, sharing: Sharing
) -> AdminServer | None:
    """Return the admin listener of a configuration; None if it has none.

    Args:
        config: the configuration.
        subject: the gateway to report on.
        reloadable: what `POST /reload` reloads.
        sharing: of its address.

    Raises:
        StartError: it cannot listen on the address.
    """
    if config.admin is None:
        return None
    address = config.admin.listen
    names = config.admin.hosts
    server = AdminServer(address.host, address.port, subject, reloadable=reloadable, names=names)
    try:
        sockets = await bound_everywhere(address, sharing)
        await server.start(sockets, waits=sharing.is_pending)
    except OSError as error:
        raise cannot_listen(ADMIN, address, error, sharing.ports) from error
    return server
