"""Names of header fields, and names whose meaning is fixed."""

from __future__ import annotations

import re
from typing import Final

HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token (RFC 9110, section 5.6.2)."""
FRAMING: Final = frozenset({"content-length", "transfer-encoding", "trailer", "te"})
HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "upgrade",
        "http2-settings",
    }
)
