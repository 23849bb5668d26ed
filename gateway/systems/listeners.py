"""Front ends: listeners that speak the protocols of other systems, on this gateway's limits.

`base` defines them and what they are passed, `asking` puts their callers' questions to the
limiter. A front end is created by a function in a module of its own, which is imported only when a
configuration names it, since the libraries it uses may not be installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from gateway.base.errors import StartError
from gateway.base.install_hint import install_hint
from gateway.config.models.frontends import FrontendConfig, titles
from gateway.systems.base import Frontend, FrontendContext, MakeFrontend

MAKERS: Final[dict[str, tuple[str, str]]] = {
    "envoy_rls": ("gateway.systems.envoy.listener:make", "grpc"),
    "ratio": ("gateway.systems.ratio.listener:make", "grpc"),
    "smockron": ("gateway.systems.smockron.listener:make_master", "zmq"),
    "throttr": ("gateway.systems.throttr.listener:make_throttr", ""),
}
"""By kind: the module and function that create the front end, and the extra that it needs."""


def make_frontends(context: FrontendContext) -> list[Frontend]:
    """Return the front ends of a configuration, in its order; none of them listens yet.

    Raises:
        StartError: a library that one of them needs is not installed.
    """
    listeners = context.config.listeners
    return [
        find_maker(index, listener)(name, listener, context)
        for index, (name, listener) in enumerate(zip(titles(listeners), listeners, strict=True))
    ]


def find_maker(index: int, listener: FrontendConfig) -> MakeFrontend:
    """Load and return the function that creates the front end of a listener.

    Args:
        index: of the listener, in the order of the configuration.
        listener: its configuration.

    Raises:
        StartError: a library that it needs is not installed.
    """
    place, extra = MAKERS[listener.kind]
    module, _, function = place.partition(":")
    try:
        make: MakeFrontend = getattr(import_module(module), function)
    except ImportError as error:
        if not extra or (error.name or "").partition(".")[0] == "gateway":
            raise
        message = f"{listener.kind} needs a library that is not installed: {error.name}"
        raise StartError(f"listeners[{index}]", message, install_hint(extra)) from error
    return make
