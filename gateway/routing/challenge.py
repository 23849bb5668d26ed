"""The challenges of a 401: what a client must send to be counted (RFC 9110, section 11.6.1).

Only some credentials have a registered scheme. `ApiKey`, with the words `in` and `name` of OpenAPI,
and `ClientCertificate` are in common use for the others; clients that do not know them still see
401.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_IN: Final = {
    **{kind: kind for kind in ("header", "cookie", "query")},
    # OpenAPI 2 has them; 3 describes bodies elsewhere.
    "json": "body",
    "form": "formData",
}
"""Where credentials are, by the kind of their key word."""


def challenge_fields(words: Iterable[str], realm: str) -> bytes:
    """Return `WWW-Authenticate` lines, each with its line end: one for each kind of credentials.

    Args:
        words: key words, such as `header:authorization`.
        realm: the name of what is protected: printable ASCII without quotes and backslashes.
    """
    challenges = dict.fromkeys(filter(None, (_challenge(word, realm) for word in words)))
    lines = [f"WWW-Authenticate: {one}\r\n" for one in challenges or [f'ApiKey realm="{realm}"']]
    return "".join(lines).encode("ascii")


def _challenge(word: str, realm: str) -> str:
    """Return the challenge for a key word; empty if it does not name credentials."""
    kind, _, name = word.partition(":")
    if word == "header:authorization" or kind == "jwt":
        # RFC 6750, section 3: without credentials, there is no error to name.
        return f'Bearer realm="{realm}"'
    if kind in _IN:
        quoted = name.replace("\\", r"\\").replace('"', r"\"")
        return f'ApiKey realm="{realm}", in="{_IN[kind]}", name="{quoted}"'
    return f'ClientCertificate realm="{realm}"' if kind == "client_cert" else ""
