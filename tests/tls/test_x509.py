"""What is read from certificates, against what `cryptography` has written into them."""

from __future__ import annotations

import contextlib
import ssl
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from gateway.net.tls.files import KeyPair, leaf
from gateway.net.tls.x509 import CertificateError, read_certificate
from tests.certificates import Authority


def test_names_and_times(authority: Authority) -> None:
    """Hosts in lower case, wildcards, addresses of both families; URIs are no server's names."""
    names = ("A.Example.com", "*.example.org", "192.0.2.1", "fd00::1", "spiffe://a/b")
    issued = authority.issue(*names)
    found = leaf(KeyPair(*issued))
    assert found.names == ("a.example.com", "*.example.org", "192.0.2.1", "fd00::1")
    assert found.not_after == issued.not_after.timestamp()
    assert found.not_after - found.not_before == 30 * 86_400


def test_a_common_name_will_do_where_there_are_no_others(authority: Authority) -> None:
    """As old authorities of companies still have it."""
    issued = authority.issue(subject=[(NameOID.COMMON_NAME, "Old.Example.com")])
    assert leaf(KeyPair(*issued)).names == ("old.example.com",)


@pytest.mark.parametrize("years", [3, 40])
def test_times_of_both_forms(authority: Authority, years: int) -> None:
    """Up to 2049 a year has two digits, from 2050 on four (RFC 5280, section 4.1.2.5)."""
    issued = authority.issue("a", lasts=timedelta(days=365 * years))
    assert leaf(KeyPair(*issued)).not_after == issued.not_after.timestamp()


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
