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
    assert isinstance(address, Address), "two ports are not a file"
    port = address.port
    yield (
        f"Gatekeepers report to port {port}, and receive from port {port + 1} which clients to "
        f"hold until when; requests do not wait here. At most "
        f"{settings.max_connections:,} connect."
    )
    for name, domain in settings.domains.items():
        if domain.policies:
            logged = "; each of its messages is logged" if domain.log else ""
            yield (
                f"Domain {name}: each identifier of a gatekeeper is counted by "
                f"{join(domain.policies)}{logged}."
            )
        else:
            yield f"Domain {name}: its messages are logged, and no request waits."


def explain_reported(name: str, policy: PolicyConfig) -> list[str]:
    """Return what a policy admits of the requests that gatekeepers report."""
    lines = [f"Policy {name}:"]
    lines += [f"  {line.text}: {explain_limit(line, is_asked=True)}." for line in policy.limits]
    if len(policy.limits) > 1:
        lines.append("  The limit with the longest wait applies.")
    return [
        *lines,
        "  Gatekeepers hold or refuse requests over the limit once they have received the message.",
    ]
