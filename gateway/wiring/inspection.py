"""Checks the files that a configuration names."""

from __future__ import annotations

from gateway.config.checking.check import Inspect, Inspection
from gateway.config.models.gateway import GatewayConfig
from gateway.wiring import certificates
from gateway.wiring.sources import source_problems


def inspection(*, is_start: bool) -> Inspect:
    """Return a function that checks the files of certificates, lists and tables.

    Args:
        is_start: as in `certificates.inspection`.
    """
    inspect_certificates = certificates.inspection(is_start=is_start)

    def inspect(config: GatewayConfig) -> Inspection:
        found = inspect_certificates(config)
        return found._replace(problems=[*found.problems, *source_problems(config)])

    return inspect
