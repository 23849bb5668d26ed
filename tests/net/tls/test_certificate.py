"""What is said of certificates: names for SNI, dates, kinds of keys."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.tls.certificate import Certificate, CertificateError, read_certificate
from gateway.net.tls.files import KeyPair, leaf
from gateway.net.tls.server import ServerTls
from tests.certificates import ONLY_OPENSSL_READS, Authority, Issued


def _read(issued: Issued) -> Certificate:
    found = leaf(KeyPair(*issued))
    assert found is not None
    return found


def test_names_and_times(authority: Authority) -> None:
    """Hosts in lower case, wildcards, addresses of both families; URIs are no server's names."""
    names = ("A.Example.com", "*.example.org", "192.0.2.1", "fd00::1", "spiffe://a/b")
    issued = authority.issue(*names)
    found = _read(issued)
    assert found.names == ("a.example.com", "*.example.org", "192.0.2.1", "fd00::1")
    assert found.not_after == issued.not_after.timestamp()
    assert found.not_after - found.not_before == 30 * 86_400


def test_a_common_name_will_do_where_there_are_no_others(authority: Authority) -> None:
    """As old authorities of companies still have it."""
    issued = authority.issue(subject=[(NameOID.COMMON_NAME, "Old.Example.com")])
    assert _read(issued).names == ("old.example.com",)


@pytest.mark.parametrize("years", [3, 40])
def test_times_of_both_forms(authority: Authority, years: int) -> None:
    """Up to 2049 a year has two digits, from 2050 on four (RFC 5280, section 4.1.2.5)."""
    issued = authority.issue("a", lasts=timedelta(days=365 * years))
    assert _read(issued).not_after == issued.not_after.timestamp()


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (rsa.generate_private_key(65537, 2048), "RSA"),
        (ec.generate_private_key(ec.SECP384R1()), "secp384r1"),
        (ed25519.Ed25519PrivateKey.generate(), "Ed25519"),
        (ed448.Ed448PrivateKey.generate(), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kinds_of_keys(
    authority: Authority, key: CertificateIssuerPrivateKeyTypes, kind: str
) -> None:
    """By the name of the curve where there are several."""
    assert _read(authority.issue("a", key=key)).key == kind


@pytest.mark.parametrize(
    "kind",
    [
        ["RSA-PSS"],
        ["EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:explicit"],
        ["EC", "-pkeyopt", "ec_paramgen_curve:sect283k1"],
    ],
    ids=["RSA-PSS", "a curve spelled out", "a curve that few know"],
)
def test_keys_in_forms_that_few_libraries_take_are_of_no_kind(
    tmp_path: Path, kind: list[str]
) -> None:
    """An RSA key for PSS alone is no RSA key to them."""
    issued = _made_by_openssl(tmp_path, kind)
    assert _read(issued) == _read(issued)._replace(names=("localhost",), key="")


def test_a_serial_number_of_zero_is_nobodys_business(tmp_path: Path) -> None:
    """Scripts write it, and OpenSSL takes it; nothing is written on stderr for it."""
    issued = _made_by_openssl(tmp_path, ["RSA"], "-set_serial", "0")
    assert _read(issued).names == ("localhost",)


def _made_by_openssl(folder: Path, kind: list[str], *words: str) -> Issued:
    issued = Issued(folder / "a.crt", folder / "a.key")
    subprocess.run(
        ["openssl", "genpkey", "-out", issued.key, "-algorithm", *kind],
        check=True,
        capture_output=True,
    )
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-key", issued.key, "-out", issued.cert),
            *("-subj", "/CN=localhost", *words),
        ],
        check=True,
        capture_output=True,
    )
    return issued


def test_what_only_openssl_reads_is_shown_all_the_same(authority: Authority) -> None:
    """It has no names to be chosen by, and no end that is known; the others have theirs."""
    odd = authority.issue("odd.example", extensions=[ONLY_OPENSSL_READS])
    usual = authority.issue("usual.example")
    tls = ServerTls([KeyPair(*odd), KeyPair(*usual)], "1.2", None, is_strict=False)
    tls.load()
    assert tls.expiries == {str(usual.cert): usual.not_after.timestamp()}


@cache
def _der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@given(data=st.data())
def test_broken_certificates_are_told_as_such(authority: Authority, data: st.DataObject) -> None:
    """Whatever is changed or cut off, the answer is a certificate or a `CertificateError`."""
    whole = _der(authority.file)
    der = bytearray(whole)
    places = st.tuples(st.integers(0, len(der) - 1), st.integers(0, 255))
    for place, value in data.draw(st.lists(places, min_size=1, max_size=4)):
        der[place] = value
    cut = data.draw(st.integers(0, len(der)))
    with contextlib.suppress(CertificateError):
        read_certificate(bytes(der[:cut]))
    with pytest.raises(CertificateError):
        read_certificate(whole[: cut // 2])
