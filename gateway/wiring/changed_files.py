"""Which of the files that a configuration names have changed since it was read."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.config.models.gateway import GatewayConfig
from gateway.config.values.words import join
from gateway.net.tls.files import digest
from gateway.wiring.certificates import files_of_certificates
from gateway.wiring.file_source import signature
from gateway.wiring.sources import files_of_sources


def fingerprints(config: GatewayConfig) -> Mapping[str, bytes]:
    """Return a fingerprint of each file of certificates, keys, lists and tables; blocks."""
    # Lists may be large, and are read again by the same sign.
    lists = {str(file): repr(signature(file)).encode() for file in files_of_sources(config)}
    return {**lists, **{str(file): digest((file,)) for file in files_of_certificates(config)}}


def renewed(
    old: Mapping[str, bytes], new: Mapping[str, bytes], config: GatewayConfig
) -> tuple[str, ...]:
    """Return which files have changed, as sentences; empty if none have.

    Args:
        old: the fingerprints before.
        new: those now.
        config: the configuration that these are of.
    """
    files = [file for file in new if file in old and old[file] != new[file]]
    of_lists = {str(file) for file in files_of_sources(config)}
    lists = [file for file in files if file in of_lists]
    others = [file for file in files if file not in of_lists]
    return (
        *((f"Renewed and in use: {join(others)}.",) if others else ()),
        # They are read once they have not changed for a second.
        *((f"Changed, and in use within seconds: {join(lists)}.",) if lists else ()),
    )
