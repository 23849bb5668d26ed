"""Listeners for requests, with TLS and PROXY headers."""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Final, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from gateway.config.values.address import (
    DEFAULT_PORTS,
    Address,
    AddressError,
    UnixAddress,
    parse_network,
)
from gateway.config.values.base import Model
from gateway.config.values.header_names import HEADER_NAME
from gateway.config.values.places import NETWORK_PATTERN, FilePath, KeyPassword, ListenerAddress
from gateway.config.values.types import (
    ListOf,
    Off,
    Switch,
    describe,
    problem,
)

_VERSION: Final = re.compile(r"(?:[Tt][Ll][Ss]v?)?(1\.[0-9])")
NOT_FOR_CERTIFICATES: Final = frozenset(
    {
        *("authorization", "connection", "content-length", "cookie", "forwarded", "host", "te"),
        *("trailer", "transfer-encoding", "upgrade", "via", "x-forwarded-for"),
        *("x-forwarded-host", "x-forwarded-proto", "x-real-ip"),
    }
)
"""Field names that already have another meaning."""


class CertificateConfig(Model):
    """A certificate and its key."""

    cert: FilePath = Field(
        description="PEM: the certificate, followed by intermediate certificates."
    )
    key: FilePath = Field(description="PEM: its private key.")
    key_password: KeyPassword | None = Field(
        None, description="The password of an encrypted key: ${file:...}.", repr=False
    )


class ClientHeaders(Model):
    """Fields that identify a client to upstreams; removed from requests of clients."""

    subject: str | None = Field(
        None, description="Field for the subject, such as CN=alice,O=Example."
    )
    san: str | None = Field(None, description="Field for the alternative names.")
    fingerprint: str | None = Field(None, description="Field for the SHA-256 of the certificate.")

    @field_validator("subject", "san", "fingerprint")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is None:
            return name
        if not HEADER_NAME.fullmatch(name):
            raise problem(f"{name!r} is not the name of a header", "for example X-Client-Subject")
        if name.lower().replace("_", "-") in NOT_FOR_CERTIFICATES:
            message = f"{name} already has another meaning"
            raise problem(message, "use another name, for example X-Client-Subject")
        return name

    @property
    def by_detail(self) -> dict[str, str]:
        """The names of the fields, by the detail that they carry."""
        return {
            detail: name
            for detail in ("subject", "san", "fingerprint")
            if (name := getattr(self, detail)) is not None
        }


def _as_version(value: object) -> object:
    """Read a version as people and other servers write it."""
    if isinstance(value, float):
        value = str(value)
    match = _VERSION.fullmatch(value.strip()) if isinstance(value, str) else None
    return match[1] if match else value


MinVersion = Annotated[
    Literal["1.2", "1.3"],
    BeforeValidator(_as_version),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [1.2, 1.3]},
                {"type": "string", "pattern": r"^\s*([Tt][Ll][Ss]v?)?1\.[23]\s*$"},
            ]
        }
    ),
]


class ListenerTls(Model):
    """TLS of a listener: its certificates, and those that it asks clients for."""

    cert: FilePath | None = Field(None, description="A single certificate: PEM.")
    key: FilePath | None = Field(None, description="Its private key, PEM.")
    key_password: KeyPassword | None = Field(
        None, description="The password of an encrypted key: ${file:...}.", repr=False
    )
    certificates: Annotated[tuple[CertificateConfig, ...], ListOf] = Field(
        (),
        description="Several certificates, chosen by the name that a client asks for; the first is "
        "for unknown names.",
    )
    min_version: MinVersion = Field("1.2", description="The oldest version of TLS: 1.2 or 1.3.")
    strict_sni: Switch = Field(
        False, description="Whether clients that ask for an unknown name are refused."
    )
    client_certificates: Annotated[Literal["required", "optional"] | None, Off] = Field(
        None, description="Whether clients must, or may, show a certificate."
    )
    client_ca: FilePath | None = Field(
        None, description="PEM: the authorities that sign clients' certificates."
    )
    client_strict: Switch = Field(
        False,
        description="Whether clients' certificates, including those of their authorities, must "
        "have every extension that RFC 5280 requires.",
    )
    client_names: Annotated[tuple[str, ...], ListOf] = Field(
        (),
        min_length=1,
        description="With envoy_rls and ratio: clients' certificates must have one of these "
        "alternative names.",
    )
    client_headers: ClientHeaders | None = Field(
        None, description="Fields that tell upstreams who the client is."
    )

    @field_validator("client_names")
    @classmethod
    def _check_names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name.split() != [name]:
                hint = "for example envoy.internal or spiffe://example/envoy"
                raise problem(f"{name!r} is not a valid alternative name", hint)
        return names

    @model_validator(mode="after")
    def _check(self) -> ListenerTls:
        if (self.cert is None) != (self.key is None):
            said, lacks = ("cert", "key") if self.key is None else ("key", "cert")
            raise problem(f"{said} without {lacks}", "set both: { cert: ..., key: ... }")
        if self.cert is None and not self.certificates:
            raise problem(
                "TLS without a certificate", "for example { cert: cert.pem, key: key.pem }"
            )
        if self.cert is not None and self.certificates:
            hint = "list them together under certificates"
            raise problem("cert and certificates cannot be combined", hint, under=("certificates",))
        if self.key_password is not None and self.cert is None:
            hint = "put it beside the key that it decrypts"
            raise problem("key_password without key", hint, under=("key_password",))
        if self.client_certificates is not None and self.client_ca is None:
            message = "client_certificates without client_ca: no certificate could be valid"
            hint = "set client_ca to the file of the authority that signs them"
            raise problem(message, hint, under=("client_certificates",))
        for field in ("client_ca", "client_strict", "client_names", "client_headers"):
            if self.client_certificates is None and getattr(self, field) not in (None, (), False):
                message = (
                    f"{field} without client_certificates: clients are not asked for certificates"
                )
                raise problem(message, "set client_certificates: required", under=(field,))
        return self

    @property
    def client_rules(self) -> tuple[object, ...]:
        """What clients must show."""
        return self.client_certificates, self.client_ca, self.client_strict

    @property
    def pairs(self) -> tuple[CertificateConfig, ...]:
        """All certificates, beginning with the one for unknown names."""
        if self.cert is None or self.key is None:
            return self.certificates
        one = CertificateConfig(cert=self.cert, key=self.key, key_password=self.key_password)
        return (one,)


def _read_senders(value: object) -> bool | tuple[IPv4Network | IPv6Network, ...]:
    if isinstance(value, bool) or value in ("on", "off"):
        return value in (True, "on")
    if isinstance(value, str | IPv4Network | IPv6Network):
        return (_read_sender(value),)
    if isinstance(value, list | tuple) and value:
        return tuple(_read_sender(one, (index,)) for index, one in enumerate(value))
    raise problem(
        f"{describe(value)} is not valid here", "use on, off, or networks such as 10.0.0.0/8"
    )


def _read_sender(value: object, under: tuple[int, ...] = ()) -> IPv4Network | IPv6Network:
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    try:
        return parse_network(str(value))
    except AddressError as error:
        raise problem(error.message, error.hint, under=under) from None


_NETWORK_SCHEMA: Final = {"type": "string", "pattern": NETWORK_PATTERN}

ProxySenders = Annotated[
    bool | tuple[IPv4Network | IPv6Network, ...],
    PlainValidator(_read_senders),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [True, False, "on", "off"]},
                _NETWORK_SCHEMA,
                {"type": "array", "items": _NETWORK_SCHEMA, "minItems": 1},
            ]
        }
    ),
]
"""Return which peers send PROXY headers: none, the trusted proxies, or these networks."""


def _read_mode(value: object) -> int:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and re.fullmatch("0?o?[0-7]{3}", text):
        return int(text[-3:], 8)
    raise problem(
        f"{describe(value)} is not valid here", "use three octal digits, for example 0660"
    )


FileMode = Annotated[
    int,
    PlainValidator(_read_mode),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"pattern": "^0?o?[0-7]{3}$"}]}),
]


def _read_https_port(value: object) -> int | None:
    if isinstance(value, bool) or value in ("on", "off"):
        return DEFAULT_PORTS["https"] if value in (True, "on") else None
    if isinstance(value, int) and 1 <= value <= 65_535:
        return value
    raise problem(
        f"{describe(value)} is not valid here", "use true, or the port on which clients reach https"
    )


HttpsPort = Annotated[
    int | None,
    PlainValidator(_read_https_port),
    WithJsonSchema(
        {"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1, "maximum": 65_535}]}
    ),
]
"""Return the port in URLs; true for the default port, which URLs omit."""


def _read_http2(value: object) -> bool | Literal["auto"]:
    if isinstance(value, bool):
        return value
    choices: dict[object, bool | Literal["auto"]] = {"on": True, "off": False, "auto": "auto"}
    chosen = choices.get(value) if isinstance(value, str) else None
    if chosen is None:
        raise problem(f"{describe(value)} is not valid here", "use true, false or auto")
    return chosen


Http2Choice = Annotated[
    bool | Literal["auto"],
    PlainValidator(_read_http2),
    WithJsonSchema({"enum": [True, False, "on", "off", "auto"]}),
]


class ListenerConfig(Model):
    """One address to listen on, with options."""

    address: ListenerAddress = Field(
        description="host:port, :port for all interfaces, or unix:/path."
    )
    tls: ListenerTls | None = Field(None, description="TLS; clients then use https.")
    redirect_to_https: HttpsPort = Field(
        None,
        description="Whether requests are redirected (308) to their https URL; or its port, if "
        "clients reach https on another port than 443.",
    )
    proxy_protocol: ProxySenders = Field(
        False,
        description="Whether connections from trusted_proxies begin with a PROXY header (version 1 "
        "or 2); or the networks whose connections do.",
    )
    http2: Http2Choice = Field(
        "auto",
        description="Whether clients may speak HTTP/2; auto: with TLS. Without TLS, a client must "
        "know that it may.",
    )
    mode: FileMode | None = Field(
        None, description="The mode of a Unix socket's file: who may connect, such as 0660."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_address(cls, data: object) -> object:
        if isinstance(data, str | int | Address | UnixAddress) and not isinstance(data, bool):
            return {"address": data}
        return data

    @model_validator(mode="after")
    def _check(self) -> ListenerConfig:
        if self.mode is not None and isinstance(self.address, Address):
            message = "mode is for Unix sockets, and this is a TCP address"
            raise problem(message, "remove it", under=("mode",))
        if self.redirect_to_https is not None and self.tls is not None:
            message = "clients of this listener already use https"
            hint = "set redirect_to_https on a listener without tls"
            raise problem(message, hint, under=("redirect_to_https",))
        if self.tls is not None and self.tls.client_names:
            message = (
                "client_names is for envoy_rls and ratio, whose clients have no other identity"
            )
            hint = "count limits per client_cert; client_headers inform upstreams"
            raise problem(message, hint, under=("tls", "client_names"))
        if isinstance(self.address, UnixAddress) and isinstance(self.proxy_protocol, tuple):
            message = "peers of a Unix socket have no address"
            hint = "use proxy_protocol: on, and mode to restrict who may connect"
            raise problem(message, hint, under=("proxy_protocol",))
        return self

    @property
    def scheme(self) -> str:
        """The scheme that clients use."""
        return "http" if self.tls is None else "https"

    @property
    def speaks_http2(self) -> bool:
        """Whether clients may speak HTTP/2, if it can be spoken here."""
        return self.tls is not None if self.http2 == "auto" else self.http2

    def __str__(self) -> str:
        return str(self.address)
