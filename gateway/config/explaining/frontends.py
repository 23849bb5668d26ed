"""Listeners for clients of other systems, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from gateway.config.explaining.tls import explain_tls
from gateway.config.models.frontends import KINDS, FrontendConfig, titles
from gateway.config.values.address import Address, UnixAddress
from gateway.config.values.words import join
from gateway.systems.envoy.explaining import explain_envoy_rls
from gateway.systems.ratio.explaining import explain_ratio
from gateway.systems.smockron.explaining import explain_smockron
from gateway.systems.throttr.explaining import explain_throttr

EXPLAINERS: Final[Mapping[str, Callable[[FrontendConfig], Iterable[str]]]] = {
    "envoy_rls": explain_envoy_rls,
    "ratio": explain_ratio,
    "smockron": explain_smockron,
    "throttr": explain_throttr,
}
"""Further descriptions of listeners, by kind."""


def explain_frontends(listeners: tuple[FrontendConfig, ...]) -> Iterator[str]:
    """Describe each listener in a paragraph."""
    for name, listener in zip(titles(listeners), listeners, strict=True):
        kind = KINDS[listener.kind]
        where = join([_place(address) for address in listener.addresses])
        yield f"Listener {name}: clients of {kind.title} are served on {where}."
        if listener.tls is not None:
            for line in explain_tls(listener.tls, where):
                yield f"  {line.strip()}"
        if listener.policies:
            word = "policy" if len(listener.policies) == 1 else "policies"
            yield f"  They are limited by {word} {join(listener.policies)}."
        explain = EXPLAINERS.get(listener.kind)
        for line in explain(listener) if explain is not None else ():
            yield f"  {line}"


def _place(address: Address | UnixAddress) -> str:
    return f"the socket {address.path}" if isinstance(address, UnixAddress) else str(address)
