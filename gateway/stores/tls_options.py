"""How the certificate of a store's server is judged: alike on every Python.

Since Python 3.13 its usual context refuses certificates that lack an extension which RFC 5280 asks
for, such as the Authority Key Identifier, and takes any certificate of `ssl_ca_certs` for an
authority, be it signed by another one or not. Older ones did neither. Here the second holds always,
for the operator has named that file, and the first where `ssl_strict=true` says so: authorities of
one's own often leave such extensions out.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

STRICT: Final = "ssl_strict"
"""The option of a store's URL."""


def read_strict(options: Mapping[str, object]) -> bool:
    """Whether certificates are judged strictly.

    Raises:
        ValueError: that is neither said to be so nor not to be so.
    """
    said = options.get(STRICT, "false")
    if said not in {"true", "false"}:
        raise ValueError(f"{STRICT} is true or false")
    return said == "true"


def judge(context: ssl.SSLContext, *, is_strict: bool) -> ssl.SSLContext:
    """The context, which judges as this module says."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if is_strict:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    else:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def why(error: OSError) -> str:
    """What is wrong with a certificate, in OpenSSL's words; or why there is no connection."""
    return getattr(error, "verify_message", "") or error.strerror or type(error).__name__
