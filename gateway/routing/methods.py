"""The known request methods: only these can reach a route."""

from __future__ import annotations

import re
from typing import Final

METHODS: Final = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"),
    *("ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK"),
    *("MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE"),
    *("ORDERPATCH", "PROPFIND", "PROPPATCH", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT"),
    *("UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL"),
    # Not registered, but used by caches, UPnP and Icecast.
    *("M-SEARCH", "NOTIFY", "PURGE", "SOURCE", "SUBSCRIBE", "UNSUBSCRIBE"),
)
"""The methods of IANA's registry (RFC 9110, section 16.1) and six more. `server.methods` adds to
them; all others are answered with 501.
"""

NEVER_FORWARDED: Final = ("CONNECT", "TRACE")
"""Answered with 405 before routing: one requests a tunnel, the other would show what proxies add to
a request (RFC 9110, sections 9.3.6 and 9.3.8).
"""

LONGEST_METHOD: Final = 40
"""Characters of a known method."""

METHOD_PATTERN: Final = rf"[A-Z][A-Z0-9_-]{{0,{LONGEST_METHOD - 1}}}"
"""The form of added methods. Methods are case-sensitive (RFC 9110, section 9.1), and servers
disagree on `get`, so lower case is not allowed.
"""

is_method: Final = re.compile(METHOD_PATTERN).fullmatch
