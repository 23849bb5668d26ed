"""A Smockron master in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.explaining.limits import explain_limit
from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.policies import PolicyConfig
from gateway.config.values.address import Address
from gateway.config.values.words import join


def explain_smockron(listener: FrontendConfig) -> Iterator[str]:
    """Yield where gatekeepers connect, and the treatment of each domain."""
    settings = listener.smockron
    if settings is None:
        return
    address = listener.address
    assert isinstance(address, Address), "two ports are no file"
    port = address.port
    yield (
        f"Gatekeepers report to port {port} and hear of port {port + 1} whom to hold until when; "
        f"requests do not wait here. {settings.max_connections:,} of them may be connected."
    )
    for name, domain in settings.domains.items():
        if domain.policies:
            logged = "; each of its messages is logged" if domain.log else ""
            yield (
                f"Domain {name}: each identifier that a gatekeeper names is held to "
                f"{join(domain.policies)}{logged}."
            )
        else:
            yield f"Domain {name}: its messages are logged, and no request waits."


def explain_reported(name: str, policy: PolicyConfig) -> list[str]:
    """Return what a policy admits of the requests that gatekeepers report."""
    lines = [f"Policy {name}:"]
    lines += [f"  {line.text}: {explain_limit(line, is_asked=True)}." for line in policy.limits]
    if len(policy.limits) > 1:
        lines.append("  Of these the one that makes wait longest counts.")
    return [*lines, "  Gatekeepers hold or refuse what is over, once they have been told."]
