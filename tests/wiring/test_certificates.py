"""What a look into the files of certificates finds: each problem in its place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.base.errors import ConfigError
from gateway.config.checking.load import load
from gateway.wiring.certificates import inspection
from tests.certificates import ONLY_OPENSSL_READS, Authority, Issued

DAY = timedelta(days=1)


def found(folder: Path, text: str, *, is_start: bool = False) -> tuple[list[str], list[str]]:
    """Problems and warnings of a configuration, each with its place and without its hint."""
    path = folder / "sluice.yaml"
    path.write_text(text + "routes: {/**: {upstream: http://127.0.0.1:9}}\n")
    try:
        loaded = load(path, {}, inspect=inspection(is_start=is_start))
    except ConfigError as error:
        return [f"{one.line} {one.path}: {one.message}" for one in error.problems], []
    return [], [f"{one.line} {one.path}: {one.message}" for one in loaded.warnings]


def listener(pair: Issued, more: str = "") -> str:
    """A listener with one certificate; the certificate in line 4, its key in line 5."""
    return (
        "listen:\n  address: 127.0.0.1:443\n  tls:\n"
        f"    cert: {pair.cert}\n    key: {pair.key}\n{more}"
    )


def test_files_that_are_as_they_should_be(tmp_path: Path, authority: Authority) -> None:
    """There is no message; relative paths begin at the configuration."""
    pair = authority.issue("a.test")
    for file in pair:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    local = Issued(Path(pair.cert.name), Path(pair.key.name))
    assert found(tmp_path, listener(local)) == ([], [])


def _missing(authority: Authority) -> Issued:
    return authority.issue("a")._replace(cert=Path("/none/cert.pem"))


def test_a_certificate_and_its_key_that_are_not_there_are_both_told(tmp_path: Path) -> None:
    """Both problems are reported in one run."""
    pair = Issued(Path("/none/cert.pem"), Path("/none/key.pem"))

    problems, _ = found(tmp_path, listener(pair))

    reason = "cannot be read: No such file or directory"
    assert problems == [
        f"4 listen.tls.cert: /none/cert.pem {reason}",
        f"5 listen.tls.key: /none/key.pem {reason}",
    ]


def _mixed(authority: Authority) -> Issued:
    return authority.issue("a")._replace(key=authority.issue("b").key)


def _locked(authority: Authority) -> Issued:
    return authority.issue("a", password="secret")


def _swapped(authority: Authority) -> Issued:
    pair = authority.issue("a")
    return Issued(pair.key, pair.cert)


def _no_key(authority: Authority) -> Issued:
    pair = authority.issue("a")
    return Issued(pair.cert, pair.cert)


def _broken(authority: Authority) -> Issued:
    pair = authority.issue("a")
    lines = pair.cert.read_text().splitlines()
    pair.cert.write_text("\n".join([lines[0], "AAAA", lines[-1]]))
    return pair


def _folder(authority: Authority) -> Issued:
    pair = authority.issue("a")
    return pair._replace(key=pair.key.parent)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (_missing, "4 listen.tls.cert: {cert} cannot be read: No such file or directory"),
        (_mixed, "5 listen.tls.key: {key} is not the key of {cert}"),
        (_locked, "5 listen.tls.key: {key} is encrypted, and there is no password"),
        (_swapped, "4 listen.tls.cert: {cert} contains no certificate in PEM format"),
        (_no_key, "5 listen.tls.key: {key} contains no private key in PEM format"),
        (_broken, "4 listen.tls.cert: {cert} contains a damaged certificate"),
        (_folder, "5 listen.tls.key: {key} cannot be read: Is a directory"),
    ],
)
def test_files_that_will_not_do(
    tmp_path: Path, authority: Authority, make: Callable[[Authority], Issued], problem: str
) -> None:
    """The problem is shown where the file is named."""
    pair = make(authority)
    expected = problem.format(cert=pair.cert, key=pair.key)
    assert found(tmp_path, listener(pair)) == ([expected], [])


def test_passphrases(tmp_path: Path, authority: Authority) -> None:
    """The right one opens the key, from a secret file too; a wrong one is reported."""
    pair = authority.issue("a", password="right")
    (tmp_path / "password").write_text("right\n")
    said = "    key_password: ${file:password}\n"
    assert found(tmp_path, listener(pair, said)) == ([], [])
    wrong = found(tmp_path, listener(pair, "    key_password: wrong\n"))[0]
    assert wrong == [f"6 listen.tls.key_password: the password does not decrypt {pair.key}"]
    # Long passphrases are OpenSSL's business; that there is no more than one key is ours.
    assert found(tmp_path, listener(authority.issue("b"), said)) == ([], [])


@pytest.mark.parametrize(
    ("starts", "lasts", "words", "is_wrong"),
    [
        (-90 * DAY, 90.5 * DAY + 2 * DAY, "expires on", False),
        (-90 * DAY, 90 * DAY + 15 * DAY, "", False),
        (-3 * DAY, 6 * DAY, "", False),
        (-5 * DAY, 6 * DAY, "expires on", False),
        (-90 * DAY, 89 * DAY, "expired on", True),
        (1 * DAY, 90 * DAY, "is not valid before", True),
    ],
)
def test_the_time_of_certificates(
    tmp_path: Path,
    authority: Authority,
    starts: timedelta,
    lasts: timedelta,
    words: str,
    is_wrong: bool,
) -> None:
    """`check` refuses one that is over, a start only warns; one that ends soon is spoken of."""
    pair = authority.issue("a", starts=starts, lasts=lasts)
    problems, warnings = found(tmp_path, listener(pair))
    said = problems if is_wrong else warnings
    assert [line for line in said if words in line] == said
    assert len(said) == bool(words)
    assert all(line.startswith("4 listen.tls.cert: ") for line in said)
    assert not (warnings if is_wrong else problems)
    problems, warnings = found(tmp_path, listener(pair), is_start=True)
    assert not problems
    assert len(warnings) == bool(words)


def test_a_certificate_that_only_openssl_reads(tmp_path: Path, authority: Authority) -> None:
    """It can be used, and the log says what is unknown about it."""
    pair = authority.issue("a", extensions=[ONLY_OPENSSL_READS])
    message = f"{pair.cert} does not conform to RFC 5280: its names and dates cannot be read"
    assert found(tmp_path, listener(pair)) == ([], [f"4 listen.tls.cert: {message}"])


def test_several_certificates_authorities_and_upstreams(
    tmp_path: Path, authority: Authority
) -> None:
    """Each file that is named is looked into, and each problem is found at once."""
    good, bad = authority.issue("a"), _mixed(authority)
    text = (
        "listen:\n  - 127.0.0.1:80\n  - address: 127.0.0.1:443\n    tls:\n      certificates:\n"
        f"        - {{cert: {good.cert}, key: {good.key}}}\n"
        f"        - {{cert: {bad.cert}, key: {bad.key}}}\n"
        f"      client_certificates: required\n      client_ca: {good.key}\n"
        "upstreams:\n"
        f"  u: {{targets: https://u, tls: {{ca: /none.pem, cert: {bad.cert}, key: {bad.key}}}}}\n"
    )
    problems, _ = found(tmp_path, text)
    mixed = f"{bad.key} is not the key of {bad.cert}"
    assert problems == [
        f"7 listen[1].tls.certificates[1].key: {mixed}",
        f"9 listen[1].tls.client_ca: {good.key} contains no certificates in PEM format",
        "11 upstreams.u.tls.ca: /none.pem cannot be read: No such file or directory",
        f"11 upstreams.u.tls.key: {mixed}",
    ]


def test_listeners_for_other_systems_are_looked_into_as_well(
    tmp_path: Path, authority: Authority
) -> None:
    """By the same words, in their own place."""
    bad = _mixed(authority)
    text = (
        "listeners:\n  - ratio: 1/s\n    tls:\n"
        f"      cert: {bad.cert}\n      key: {bad.key}\n"
        f"      client_certificates: required\n      client_ca: {bad.key}\n"
    )
    problems, _ = found(tmp_path, text)
    assert problems == [
        f"5 listeners[0].tls.key: {bad.key} is not the key of {bad.cert}",
        f"7 listeners[0].tls.client_ca: {bad.key} contains no certificates in PEM format",
    ]
