"""Checks the certificate of a store's server in the same way on every Python.

Since Python 3.13 the default context refuses certificates that lack an extension that RFC 5280
requires, such as the Authority Key Identifier, and takes any certificate of `ssl_ca_certs` for an
authority, even if another one signed it. Older versions did neither. Here the second always
applies, since the operator has named that file, and the first only with `ssl_strict=true`: private
authorities often omit such extensions.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

STRICT: Final = "ssl_strict"
"""The option of a store's URL."""


def read_strict(options: Mapping[str, object]) -> bool:
    """Return whether certificates are checked strictly.

    Raises:
        ValueError: the option is neither true nor false.
    """
    said = options.get(STRICT, "false")
    if said not in {"true", "false"}:
        raise ValueError(f"{STRICT} is true or false")
    return said == "true"


def judge(context: ssl.SSLContext, *, is_strict: bool) -> ssl.SSLContext:
    """Return the context, set to check certificates as this module describes."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if is_strict:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    else:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def why(error: OSError) -> str:
    """Return what is wrong with a certificate, in OpenSSL's words, or why connecting failed."""
    return getattr(error, "verify_message", "") or error.strerror or type(error).__name__
