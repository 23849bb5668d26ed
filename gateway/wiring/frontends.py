"""The listeners for clients of other systems, when the configuration changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.config.models.frontends import titles
from gateway.config.models.gateway import GatewayConfig
from gateway.net.binding import BindError, Sharing
from gateway.net.start_errors import cannot_listen
from gateway.systems.base import Frontend, FrontendContext
from gateway.systems.listeners import find_maker


class FrontendChange(NamedTuple):
    """The front ends of another configuration.

    Attributes:
        running: all of them, in its order.
        new: those of them that have to be started, each after the number of its listener.
        changes: make the others serve as the configuration says.
        retired: those that it does not use.
    """

    running: list[Frontend]
    new: list[tuple[int, Frontend]]
    changes: list[Callable[[], object]]
    retired: list[Frontend]


def change_frontends(
    context: FrontendContext, old: GatewayConfig, frontends: Sequence[Frontend]
) -> FrontendChange:
    """Return the front ends of another configuration.

    Each listener keeps its front end, with the connections of its clients, unless what has changed
    takes another one. That one shares the address until the old one is gone.

    Args:
        context: what the front ends use, with the other configuration.
        old: the configuration before.
        frontends: its front ends, in its order.

    Raises:
        StartError: a library that one of them needs is not installed.
    """
    before = dict(zip((one.address for one in old.listeners), frontends, strict=True))
    change = FrontendChange([], [], [], [])
    listeners = context.config.listeners
    for index, (name, listener) in enumerate(zip(titles(listeners), listeners, strict=True)):
        present = before.get(listener.address)
        apply = None if present is None else present.reconfigured(name, listener, context)
        if present is None or apply is None:
            # Only an address that is ours already may be shared with whoever listens there.
            ours = frozenset({os.getpid()} if present is not None else ())
            predecessors = context.sharing.predecessors | ours if ours else frozenset()
            sharing = Sharing(is_on=True, predecessors=predecessors, ports=context.sharing.ports)
            made = find_maker(index, listener)(name, listener, context._replace(sharing=sharing))
            change.new.append((index, made))
            change.running.append(made)
        else:
            change.changes.append(apply)
            change.running.append(present)
    change.retired.extend(one for one in frontends if one not in change.running)
    return change


async def start_frontends(config: GatewayConfig, frontends: Sequence[tuple[int, Frontend]]) -> None:
    """Let front ends listen, each after the number of its listener.

    Raises:
        StartError: an address cannot be bound.
    """
    for index, frontend in frontends:
        try:
            await frontend.start()
        except OSError as error:
            listener = config.listeners[index]
            address = error.address if isinstance(error, BindError) else listener.address
            raise cannot_listen(f"listeners[{index}].bind", address, error) from error
