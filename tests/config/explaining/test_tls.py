"""What is said of listeners and of TLS to upstreams, sentence by sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gateway.config.checking.check import check_text
from gateway.config.explaining.explain import explain
from gateway.config.explaining.limits import explain_limit

TEXT: Final = (Path(__file__).parents[1] / "golden" / "ok-tls.yaml").read_text()

SAID: Final = """\
The gateway listens on port 80 of 127.0.0.1, port 443 of 127.0.0.1 and the socket /run/sluice.sock.
On port 443 of 127.0.0.1, connections from 10.0.0.0/8, fd00::/8 begin with a PROXY header, which \
has the client's address.
On port 443 of 127.0.0.1, clients use TLS 1.3 or newer; the certificate is /c/a.pem, others by \
name: /c/b.pem.
  Clients that ask for an unknown name are refused.
  Clients may show a certificate that is signed by /c/clients.pem.
  Certificates must have every extension that RFC 5280 requires.
  Upstreams receive subject in X-Client-Subject, fingerprint in X-Client-Hash; clients cannot set \
these fields.
On the socket /run/sluice.sock, connections from trusted proxies begin with a PROXY header, which \
has the client's address.
  Its certificate must be for pay.internal, and signed by /c/ca.pem.
  Certificates must have every extension that RFC 5280 requires.
  If the upstream asks for a certificate, it receives /c/gw.pem.
"""


def test_every_part_is_explained() -> None:
    """Which certificates are required, and which authorities are trusted."""
    lines = explain(check_text(TEXT.rpartition("\n-----\n")[0]).config)
    assert [line for line in SAID.splitlines() if line not in lines] == []


def test_what_clients_are_counted_by() -> None:
    """A certificate is named with the detail of it that counts."""
    config = check_text(TEXT.rpartition("\n-----\n")[0]).config
    said = [explain_limit(policy.limits[0]) for policy in config.policies.values()]
    assert [line.partition(", counted ")[2] for line in said] == [
        "for each combination of client certificate (subject) and route",
        "for each client certificate (fingerprint)",
    ]
