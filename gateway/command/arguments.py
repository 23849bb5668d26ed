"""Argument types of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.config.values.address import Address


class StoreOnce(argparse.Action):
    """Stores an option and refuses a second one: argparse would silently keep the last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store the value."""
        if getattr(namespace, self.dest, None) is not None:
            parser.error(f"{option_string} is given twice")
        setattr(namespace, self.dest, values)


def address(text: str) -> Address:
    """Return the address that an option names.

    Raises:
        argparse.ArgumentTypeError: the text is not an address.
    """
    from gateway.config.values.address import AddressError, parse_address

    try:
        return parse_address(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None
