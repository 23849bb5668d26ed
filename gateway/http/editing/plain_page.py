"""The page of an error that has no page of its own: for people, who want to know what to do.

It has no scripts, and loads nothing. Its few styles are allowed by their hash, so that it is
complete under a strict policy of its own (CSP), and readable under one that forbids them: the
colours, light or dark, are those of the browser.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from html import escape
from typing import Final

from gateway.http.editing.pages import Facts

_STYLE: Final = (
    "body{font:1.125rem/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1.5rem}"
    "h1{font-size:1.5rem;line-height:1.2}"
)
_HASH: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest())
PLAIN_PAGE_FIELDS: Final = (
    b"Content-Security-Policy: default-src 'none'; style-src 'sha256-%b'; base-uri 'none'; "
    b"form-action 'none'\r\n" % _HASH
)
"""The header lines of the page."""

_MESSAGES: Final = {
    401: "This address is only for those who have logged in.",
    403: "You may not use this address.",
    404: "There is nothing at this address. Please check that it is complete and has no mistake.",
    405: "This address does not take requests of this kind.",
    413: "What was sent is larger than this site accepts.",
    429: "Too many requests have come from you in a short time.",
    500: "Something went wrong on our side.",
    502: "The server behind this site is not working as it should.",
    503: "This site has more to do than it can manage, or is being worked on.",
    504: "The server behind this site takes too long to respond.",
}


def plain_page(facts: Facts) -> str:
    """Return the page; what went wrong is said in our own words, or in those of the problem."""
    name = f"{facts.status} {escape(facts.reason)}"
    message = escape(_MESSAGES.get(facts.status, f"{facts.title}."))
    advice = f"<p><strong>{escape(facts.advice)}</strong></p>\n" if facts.advice else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="robots" content="noindex">\n'
        f"<title>{name}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{name}</h1>\n<p>{message}</p>\n{advice}</main>\n</body>\n</html>\n"
    )


def plain_text(facts: Facts) -> str:
    """Return the same in two lines, or one if there is no advice."""
    return "".join(f"{line}\n" for line in (f"{facts.status} {facts.reason}", facts.advice) if line)
