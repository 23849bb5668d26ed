"""URLs of stores that name several hosts, taken apart."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult

_URL: Final = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)


def split_url(url: str) -> SplitResult:
    """The parts of a URL (RFC 3986, appendix B), whose hosts are not looked at.

    `urlsplit` would do, but judges the brackets of an IPv6 address, as if there were one host only,
    differently from one Python to the next.
    """
    match = _URL.fullmatch(url)
    scheme, netloc, path, query, fragment = match.groups("") if match else ("", "", url, "", "")
    return SplitResult(scheme.lower(), netloc, path, query, fragment)
