"""The certificate for a server name (RFC 6066, section 3)."""

from __future__ import annotations

from collections.abc import Sequence


class NameTable:
    """Server names and their certificates.

    Args:
        names: the names of each certificate, as in `certificate.Certificate.names`; if two
            certificates have the same name, the first one is used.
    """

    __slots__ = ("_exact", "_wildcards")

    def __init__(self, names: Sequence[Sequence[str]]) -> None:
        self._exact: dict[str, int] = {}
        self._wildcards: dict[str, int] = {}
        for index, some in enumerate(names):
            for name in some:
                is_wildcard = name.startswith("*.")
                table = self._wildcards if is_wildcard else self._exact
                table.setdefault(name[2:] if is_wildcard else name, index)

    def find(self, server_name: str | None) -> int | None:
        """Return the certificate for a server name; None if there is none.

        A wildcard stands for exactly one label (RFC 6125, section 6.4.3).
        """
        if not server_name:
            return None
        name = server_name.lower().removesuffix(".")
        found = self._exact.get(name)
        return found if found is not None else self._wildcards.get(name.partition(".")[2])
