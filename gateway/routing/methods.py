"""The request methods that a route may name: what can reach one at all."""

from __future__ import annotations

from typing import Final

METHODS: Final = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"),
    *("ACL", "BIND", "CHECKOUT", "COPY", "LINK", "LOCK", "M-SEARCH", "MERGE", "MKACTIVITY"),
    *("MKCALENDAR", "MKCOL", "MOVE", "NOTIFY", "PROPFIND", "PROPPATCH", "PURGE", "REBIND"),
    *("REPORT", "SEARCH", "SOURCE", "SUBSCRIBE", "UNBIND", "UNLINK", "UNLOCK", "UNSUBSCRIBE"),
)
"""What llhttp, the server's parser, knows of HTTP; other methods are answered 501."""

NEVER_FORWARDED: Final = ("CONNECT", "TRACE")
"""Answered 405 before a route is looked for: the one asks for a tunnel, the other would show
what proxies add to a request (RFC 9110, sections 9.3.6 and 9.3.8)."""
