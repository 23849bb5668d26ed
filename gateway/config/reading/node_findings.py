"""Checks of values as they were written: missing, ambiguous and secret ones."""

from __future__ import annotations

import re
from typing import Final

from gateway.base.errors import Problem
from gateway.config.models.shorthand import is_extension
from gateway.config.reading.nodes import MappingNode, Node, ScalarNode, scalars, show_path
from gateway.config.values.findings import Path
from gateway.config.values.redaction import Secrets
from gateway.config.values.written import WrittenInt

_OCTAL: Final = re.compile(r"([-+]?)0+([0-7]+)")
_NEVER_SHOWN: Final = (["key_password"], ["key_secret"], ["secret"])
_OCTAL_KEYS: Final = ("mode",)
"""Keys whose values are octal digits, however they begin."""


def without_extensions(root: Node) -> Node:
    """Return the root of a file without its `x-` keys, which only hold anchors."""
    if not isinstance(root, MappingNode):
        return root
    kept = {name: one for name, one in root.members.items() if not is_extension(name)}
    return root if len(kept) == len(root.members) else MappingNode(root.place, kept, root.size)


def without_secrets(node: Node, path: Path, message: str, hint: str) -> tuple[str, str]:
    """Return a problem of a value, without secrets and passwords.

    Args:
        node: the value.
        path: its path.
        message: the mistake.
        hint: how to fix it.
    """
    if isinstance(node, ScalarNode):
        # The text of a response is not secret.
        is_sent = "error_pages" in path or "respond" in path
        if node.is_secret and not is_sent:
            return "the content of the file is not valid here", ""
        if hint.startswith("quote it: ") and "${" in node.written:
            hint = f'quote it: "{node.written}"'
        secrets = node.secrets
        return (secrets.hide(message), secrets.hide(hint)) if secrets else (message, hint)
    if path:
        for _, scalar in scalars(node):
            if scalar.secrets is not None:
                message, hint = scalar.secrets.hide(message), scalar.secrets.hide(hint)
    return message, hint


def shown_secrets(root: Node) -> Secrets:
    """Return the secrets from files that an explanation might show.

    Passwords of URLs, header fields and passwords of keys are never shown, so words that happen to
    equal one of them need not be masked.
    """
    secrets = Secrets()
    for path, node in scalars(root):
        if node.is_secret and node.secrets is not None and not _is_untold(path):
            secrets.update(node.secrets)
    return secrets


def _is_untold(path: Path) -> bool:
    names = [part for part in path if isinstance(part, str)]
    is_field = "request_headers" in names or "response_headers" in names
    is_condition = names[:1] in (["routes"], ["upstreams"]) and names[-2:-1] == ["headers"]
    is_sent = "error_pages" in names or "respond" in names
    return is_field or is_condition or is_sent or names[-1:] in _NEVER_SHOWN


def unwritten(root: Node) -> list[Problem]:
    """Return a problem for each key without a value, and for each ambiguous number.

    Args:
        root: a configuration that has no other problem.
    """
    found: dict[tuple[str, int, int], Problem] = {}
    for path, node in scalars(root):
        place = (node.place.document.file, node.place.line, node.place.column)
        said = _said_of(path, node)
        if said is not None and place not in found:
            message, hint = said
            found[place] = node.place.problem(message, hint, show_path(path))
    return list(found.values())


def _said_of(path: Path, node: ScalarNode) -> tuple[str, str] | None:
    name = path[-1] if path else ""
    # A domain without limits is only logged, and metadata may be any data.
    is_data = path[-2:-1] == ("domains",) or "metadata" in path
    if node.value is None and not is_data:
        what = f"{name} has no value" if isinstance(name, str) else "this entry has no value"
        if node.written.startswith("${"):
            what = f"{node.written} is empty"
        return what, "write one, or remove it to use the default"
    octal = _OCTAL.fullmatch(node.written)
    if not isinstance(node.value, WrittenInt) or octal is None or name in _OCTAL_KEYS:
        return None
    sign, digits = octal.groups()
    message = f"{node.written} is {int(node.value)} in YAML 1.2, and {int(digits, 8)} in YAML 1.1"
    return message, f"write {sign}{digits}, or {sign}0o{digits} for the other"
