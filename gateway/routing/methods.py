"""The request methods that are known: what can reach a route at all."""

from __future__ import annotations

import re
from typing import Final

METHODS: Final = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"),
    *("ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "COPY", "LABEL", "LINK", "LOCK"),
    *("MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE"),
    *("ORDERPATCH", "PROPFIND", "PROPPATCH", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNCHECKOUT"),
    *("UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL"),
    # Not registered, but what caches, UPnP and Icecast ask with.
    *("M-SEARCH", "NOTIFY", "PURGE", "SOURCE", "SUBSCRIBE", "UNSUBSCRIBE"),
)
"""Those of IANA's registry (RFC 9110, section 16.1), and six more. `server.methods` adds to them;
all others are answered 501."""

NEVER_FORWARDED: Final = ("CONNECT", "TRACE")
"""Answered 405 before a route is looked for: the one asks for a tunnel, the other would show
what proxies add to a request (RFC 9110, sections 9.3.6 and 9.3.8)."""

LONGEST_METHOD: Final = 40
"""Characters of a method that may be known."""

METHOD_PATTERN: Final = rf"[A-Z][A-Z0-9_-]{{0,{LONGEST_METHOD - 1}}}"
"""What a method that is added may look like. They differ by case (RFC 9110, section 9.1), and
servers differ in what they make of `get`: there are none in small letters."""

is_method: Final = re.compile(METHOD_PATTERN).fullmatch
