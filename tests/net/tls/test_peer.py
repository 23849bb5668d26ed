"""Names of clients as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.net.tls.peer import client_certificate, distinguished_name

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.lists(
    st.lists(st.tuples(st.sampled_from(["commonName", "organizationName"]), WORDS), min_size=1),
    max_size=3,
)


def test_the_last_part_comes_first() -> None:
    """As RFC 4514 has it, with its short names; others keep theirs."""
    name = (
        (("countryName", "DE"),),
        (("organizationName", "Müller, Söhne"),),
        (("commonName", "alice"), ("emailAddress", "a@b.test")),
    )
    text = r"CN=alice+emailAddress=a@b.test,O=M\C3\BCller\, S\C3\B6hne,C=DE"
    assert distinguished_name(name) == text


def test_alternative_names_and_fingerprint() -> None:
    """Everything that `ssl` returns about a certificate becomes text."""
    decoded = {
        "subject": ((("commonName", "a"),),),
        "subjectAltName": (("DNS", "a.test"), ("IP Address", "192.0.2.1"), ("URI", "spiffe://a/b")),
    }
    found = client_certificate(decoded, b"der")
    assert found.subject == "CN=a"
    assert found.san == "DNS:a.test,IP:192.0.2.1,URI:spiffe://a/b"
    assert len(found.fingerprint) == 64


@given(NAMES, NAMES)
def test_different_names_are_different_texts(
    one: list[list[tuple[str, str]]], other: list[list[tuple[str, str]]]
) -> None:
    """Escapes cannot make two names equal, and every text is valid in a header field."""
    texts = [distinguished_name(tuple(tuple(part) for part in name)) for name in (one, other)]
    assert (texts[0] == texts[1]) == (one == other)
    assert all(text.isascii() and text.isprintable() for text in texts)
