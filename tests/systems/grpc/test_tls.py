"""TLS of the listeners for gRPC: what clients are shown, what they show, and how it is renewed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.base.errors import ConfigError, StartError
from gateway.config.checking.check import Source, check, check_text
from gateway.wiring.certificates import inspection
from gateway.wiring.gateway import Gateway
from tests.certificates import Authority, Issued
from tests.envoy_rls import call
from tests.grpc_engine import port_of
from tests.proxy.wire import make_gateway
from tests.ratio import OK, PATH, read_files_first, request
from tests.servers import until

BOTH: Final = """
listeners:
  - ratio: 100/m
    bind: 127.0.0.1:0
    tls: {{ {said} }}
  - envoy_rls: {{ domains: {{ shop: [{{ match: {{ user: "*" }}, limit: 10/s }}] }} }}
    bind: 127.0.0.1:0
    tls: {{ {said} }}
admin: off
log: {{ access: off, output: {log} }}
"""


KEYS_OF_OPENSSL_ALONE: Final[list[CertificateIssuerPrivateKeyTypes]] = [
    ec.generate_private_key(ec.SECP256K1()),
    ec.generate_private_key(ec.SECP224R1()),
    ed448.Ed448PrivateKey.generate(),
]


class Running(NamedTuple):
    """A gateway in this process.

    Attributes:
        gateway: the gateway.
        ports: of its listeners.
    """

    gateway: Gateway
    ports: list[int]


@asynccontextmanager
async def _running(said: str, log: Path) -> AsyncIterator[Running]:
    text = BOTH.format(said=said, log=log)
    config = await asyncio.to_thread(lambda: check_text(text).config)
    await asyncio.to_thread(read_files_first)
    gateway = make_gateway(config)
    await gateway.start()
    try:
        yield Running(gateway, [port_of(one) for one in gateway.frontend_addresses])
    finally:
        await gateway.stop()


def _channel(
    port: int, authority: Authority, shown: Issued | None = None, name: str = "a.test"
) -> grpc.aio.Channel:
    key, chain = (shown.key.read_bytes(), shown.cert.read_bytes()) if shown else (None, None)
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes(), key, chain)
    # A session that is resumed would show what was shown before.
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)


async def _ask(
    port: int, authority: Authority, shown: Issued | None = None, name: str = "a.test"
) -> bytes:
    """What ratio's service answers on a connection of its own.

    Raises:
        grpc.aio.AioRpcError: there is no connection.
    """
    async with _channel(port, authority, shown, name) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
        return await method(request())


async def _is_refused(port: int, authority: Authority, shown: Issued | None = None) -> bool:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await _ask(port, authority, shown)
    return error.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The gateway's."""
    return tmp_path / "log"


def _pair(issued: Issued) -> str:
    return f"cert: {issued.cert}, key: {issued.key}"


async def test_both_services_are_served_by_tls_and_not_without(
    authority: Authority, log: Path
) -> None:
    """And not to clients that trust another authority."""
    async with _running(_pair(authority.issue("a.test")), log) as (_, ports):
        assert await _ask(ports[0], authority) == OK
        async with _channel(ports[1], authority) as channel:
            assert (await call(channel, {"user": "ann"})).statuses[0].remaining == 9
        async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as plain:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = plain.unary_unary(PATH)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await method(request())
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_clients_show_a_certificate_of_the_authority(
    authority: Authority, stranger: Authority, log: Path
) -> None:
    """Those that have none, or one of another's, are turned away."""
    said = f"client_certificates: required, client_ca: {authority.file}"
    async with _running(f"{_pair(authority.issue('a.test'))}, {said}", log) as (_, ports):
        assert await _ask(ports[0], authority, authority.issue("envoy")) == OK
        assert await _is_refused(ports[0], authority)
        assert await _is_refused(ports[0], authority, stranger.issue("envoy"))


async def test_only_certificates_with_one_of_the_names_may_ask(
    authority: Authority, log: Path
) -> None:
    """DNS in whichever case, URIs to the letter, addresses however they are written.

    Health is told to all who have one.
    """
    said = (
        f"client_certificates: required, client_ca: {authority.file}, "
        "client_names: [Envoy.test, 'spiffe://a/Envoy', 'urn:a:Envoy', '2001:DB8:0:0::1']"
    )
    async with _running(f"{_pair(authority.issue('a.test'))}, {said}", log) as (_, ports):
        for name in ("envoy.test", "spiffe://a/Envoy", "2001:db8::1"):
            assert await _ask(ports[0], authority, authority.issue("b.test", name)) == OK
        strangers = ("mallory.test", "spiffe://a/envoy", "urn:a:envoy")
        for port, name in zip((*ports, ports[0]), strangers, strict=True):
            async with _channel(port, authority, authority.issue(name)) as channel:
                health: Any = health_pb2_grpc.HealthStub(channel)
                assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    if port == ports[1]:
                        await call(channel, {"user": "ann"})
                    else:
                        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
                        method = channel.unary_unary(PATH)
                        await method(request())
                assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_certificate_is_chosen_by_name(authority: Authority, log: Path) -> None:
    """The first one is for names that none of them has."""
    pairs = ", ".join(f"{{ {_pair(authority.issue(name))} }}" for name in ("a.test", "b.test"))
    async with _running(f"certificates: [{pairs}]", log) as (_, ports):
        for name in ("a.test", "b.test"):
            assert await _ask(ports[0], authority, name=name) == OK


async def test_changed_files_are_in_use_for_new_connections(
    authority: Authority, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Open ones go on; a change that will not do leaves things as they are."""
    caplog.set_level(logging.INFO)
    shown, other = authority.issue("a.test"), authority.issue("b.test")
    async with _running(_pair(shown), log) as (gateway, ports):
        async with _channel(ports[0], authority) as channel:
            method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(PATH)
            assert await method(request()) == OK
            await asyncio.to_thread(shown.key.write_bytes, other.key.read_bytes())
            gateway.renew_certificates()
            await until(lambda: "is not the key of" in caplog.text)
            assert await _ask(ports[0], authority) == OK
            await asyncio.to_thread(shown.replace_by, other)
            gateway.renew_certificates()
            # Each of the listeners.
            await until(lambda: caplog.text.count("changed certificates are now in use") == 2)
            assert await _ask(ports[0], authority, name="b.test") == OK
            assert await _is_refused(ports[0], authority)
            assert await method(request()) == OK
        ends = gateway.metrics.certificates[str(shown.cert)]
        assert ends == int(other.not_after.timestamp())


@pytest.mark.parametrize(
    "key",
    [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())],
    ids=["RSA", "P-384"],
)
async def test_what_stands_around_certificates_is_nothing(
    key: CertificateIssuerPrivateKeyTypes, authority: Authority, log: Path
) -> None:
    """A byte order mark, above all; the library would not read past it."""
    issued = authority.issue("a.test", key=key)
    for file in issued:
        content = await asyncio.to_thread(file.read_bytes)
        marked = b"\xef\xbb\xbf%s\r\nissued to a.test\n" % content
        await asyncio.to_thread(file.write_bytes, marked)
    async with _running(_pair(issued), log) as (_, ports):
        assert await _ask(ports[0], authority) == OK


@pytest.mark.parametrize("key", KEYS_OF_OPENSSL_ALONE)
def test_a_key_that_the_library_does_not_take_is_told_of_beforehand(
    key: CertificateIssuerPrivateKeyTypes, authority: Authority
) -> None:
    """OpenSSL accepts it; the start would fail, with the error that the address is in use."""
    issued = authority.issue("a.test", key=key)
    with pytest.raises(ConfigError) as error:
        _check(_pair(issued))
    (problem, _) = error.value.problems
    assert problem.path == "listeners[0].tls.cert"
    assert problem.message == f"{issued.cert} has a kind of key that gRPC does not support"


def test_a_key_that_is_protected_is_not_to_have_its_passphrase_named(authority: Authority) -> None:
    """It would be refused next."""
    with pytest.raises(ConfigError) as error:
        _check(_pair(authority.issue("a.test", password="secret")))
    assert "an unencrypted key" in error.value.problems[0].hint


async def test_a_renewed_key_that_the_library_does_not_take_leaves_things_as_they_are(
    authority: Authority, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log does not report it as in use."""
    shown = authority.issue("a.test")
    other = authority.issue("b.test", key=KEYS_OF_OPENSSL_ALONE[0])
    async with _running(_pair(shown), log) as (gateway, ports):
        await asyncio.to_thread(shown.replace_by, other)
        gateway.renew_certificates()
        await until(lambda: "a kind of key that gRPC does not support" in caplog.text)
        assert await _ask(ports[0], authority) == OK


def _check(said: str) -> None:
    text = BOTH.format(said=said, log="stdout")
    check([Source("a.yaml", text.encode())], {}, str, inspect=inspection(is_start=False))


async def test_files_that_will_not_do_keep_a_gateway_from_starting(
    authority: Authority, log: Path
) -> None:
    """With the place of the file in the configuration."""
    said = f"cert: {authority.issue('a').cert}, key: {authority.issue('b').key}"
    with pytest.raises(StartError, match="is not the key of") as error:
        async with _running(said, log):
            pass
    assert error.value.path == "listeners[0].tls.key"
