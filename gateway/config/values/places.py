"""Types of files (and passwords of keys), networks, listen addresses and header fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import PlainValidator, ValidationInfo, WithJsonSchema

from gateway.config.values.address import (
    Address,
    AddressError,
    UnixAddress,
    lone_port,
    parse_address,
    parse_listener,
    parse_network,
)
from gateway.config.values.header_names import HEADER_NAME
from gateway.config.values.hosts import is_lone_variable, unfilled_hint
from gateway.config.values.types import (
    ADDRESS_EXAMPLES,
    ADDRESS_SCHEMA,
    FROM_FILE,
    describe,
    problem,
)
from gateway.config.values.written import as_text, reference_or_digits

T = TypeVar("T")

MIN_KEY_SECRET: Final = 16
"""Characters of the secret for keys: with it, whoever reads a store could try all keys out."""

NETWORK_PATTERN: Final = r"^\s*[0-9A-Fa-f:.]+(/[0-9]{1,3})?\s*$"


def from_file(folder: Path | None) -> dict[str, Any]:
    """The validation context of the folder that relative paths start from."""
    return {**FROM_FILE, "folder": folder}


def _read_listener(value: object) -> Address | UnixAddress:
    if isinstance(value, Address | UnixAddress):
        return value
    return _read_address(value, parse_listener)


def _read_listen(value: object) -> Address:
    return value if isinstance(value, Address) else _read_address(value, parse_address)


def _read_address(value: object, parse: Callable[[str], T]) -> T:
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            raise lone_port(reference_or_digits(value))
        if isinstance(value, str):
            return parse(value)
    except AddressError as error:
        raise problem(error.message, error.hint) from None
    raise problem(f"found {describe(value)}, an address such as 127.0.0.1:8080 was expected")


def check_path(text: str) -> None:
    """Refuse paths that only a shell would expand. Raises `problem`."""
    if text.startswith("~"):
        raise problem(f"{text!r} begins with ~, which only shells expand", "write the full path")
    for segment in text.split("/"):
        if is_lone_variable(segment):
            raise problem(f"{segment!r} in a path is text", unfilled_hint(segment))


def _read_path(value: object, info: ValidationInfo) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise problem(f"found {describe(value)}, the path of a file was expected")
    text = value.strip()
    if text.startswith("-----"):
        raise problem(
            "found the content of a file, its path was expected", "for example /run/key.pem"
        )
    if not text or text.endswith("/"):
        raise problem(f"{text!r} is not the path of a file", "for example /etc/sluice/tls/cert.pem")
    check_path(text)
    context: Any = info.context
    folder = context.get("folder") if isinstance(context, Mapping) else None
    return Path(text) if folder is None else folder / text


def _read_key_password(value: object) -> str:
    value = as_text(value)
    if isinstance(value, str) and value:
        return value
    # The value is not shown: it is a secret.
    raise problem("this is not a valid password", "use text in quotes, or ${file:/run/secrets/key}")


def _read_key_secret(value: object) -> str:
    value = as_text(value)
    if isinstance(value, str) and len(value) >= MIN_KEY_SECRET:
        return value
    message = f"this is not text of at least {MIN_KEY_SECRET} characters"
    raise problem(message, "make one with: openssl rand -hex 32")


def _read_field_text(value: object) -> str:
    value = as_text(value)
    if isinstance(value, str):
        return value
    quoted = str(value).lower() if isinstance(value, bool) else value
    hint = f'quote it: "{quoted}"' if isinstance(value, bool | int | float) else ""
    raise problem(f"found {describe(value)}, text was expected", hint)


def _read_condition_name(name: object) -> str:
    if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
        raise problem(f"{describe(name)} is not the name of a header")
    if name.lower() == "host":
        raise problem("the host has a key of its own", "write host: ...")
    return name


def _read_network(value: object) -> IPv4Network | IPv6Network:
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    if not isinstance(value, str):
        raise problem(f"found {describe(value)}, a network such as 10.0.0.0/8 was expected")
    try:
        return parse_network(value)
    except AddressError as error:
        raise problem(error.message, error.hint) from None


ListenAddress = Annotated[Address, PlainValidator(_read_listen), WithJsonSchema(ADDRESS_SCHEMA)]
ListenerAddress = Annotated[
    Address | UnixAddress,
    PlainValidator(_read_listener),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^\s*unix:/|{ADDRESS_SCHEMA['pattern']}",
            "examples": [*ADDRESS_EXAMPLES, "unix:/run/sluice.sock"],
        }
    ),
]
"""Where to listen for requests: TCP, or a Unix socket."""

FilePath = Annotated[
    Path,
    PlainValidator(_read_path),
    WithJsonSchema({"type": "string", "minLength": 1, "examples": ["/etc/sluice/tls/cert.pem"]}),
]
"""The path of a file; relative paths start from the configuration."""

KeySecret = Annotated[
    str,
    PlainValidator(_read_key_secret),
    WithJsonSchema({"type": "string", "minLength": MIN_KEY_SECRET}),
]
"""The secret that keys of limits are hashed with; never shown."""

KeyPassword = Annotated[
    str,
    PlainValidator(_read_key_password),
    WithJsonSchema({"type": "string", "minLength": 1}),
]
"""The password of a private key; never shown."""

FieldText = Annotated[str, PlainValidator(_read_field_text), WithJsonSchema({"type": "string"})]
"""The value of a header field; references are text, even if they look like numbers."""

ConditionName = Annotated[
    str, PlainValidator(_read_condition_name), WithJsonSchema({"type": "string"})
]
"""The name of a header field that a request must have."""

Network = Annotated[
    IPv4Network | IPv6Network,
    PlainValidator(_read_network),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": NETWORK_PATTERN,
            "examples": ["10.0.0.0/8", "fd00::/8"],
        }
    ),
]
