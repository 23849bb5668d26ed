"""The head of a request as sent to its upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.proxy.answer_meter import readable_coding
from gateway.proxy.head import PSEUDONYM, RequestOrigin, request_fields

if TYPE_CHECKING:
    from gateway.proxy.request import Request
    from gateway.proxy.ruling import Ruling

VIA: Final = f"Via: 1.1 {PSEUDONYM}\r\n".encode("ascii")


VIA_2: Final = f"Via: 2.0 {PSEUDONYM}\r\n".encode("ascii")
"""The version is that of the message that was received."""


def request_head(request: Request, ruling: Ruling, authority: str, framing: bytes) -> bytes:
    """Return the head for the upstream.

    Args:
        request: the request that is forwarded.
        ruling: its route, and the target for the upstream.
        authority: of the target.
        framing: the header lines of its body's framing.
    """
    client = request.connection
    headers = request.message.raw_headers
    host = request.raw_host or authority
    if client.sent_headers == headers and client.sent_host == host:
        fields = client.sent_fields
    else:
        origin = RequestOrigin(
            client.peer,
            client.scheme,
            host,
            client.is_trusted,
            own_fields=client.own_fields,
            reserved=client.reserved,
            report=request.report,
        )
        fields = request_fields(headers, origin, VIA_2 if request.is_http_2 else VIA)
        client.sent_headers = headers
        client.sent_host = host
        client.sent_fields = fields
    target = request.target
    outgoing = ruling.route.outgoing
    if outgoing is not None:
        # The cached lines are the same for all routes; the changes of one route are not.
        target = ruling.sent_target
        fields = outgoing.fields(fields, request, authority)
    if ruling.meter is not None and ruling.meter.reads_body:
        fields = readable_coding(fields)
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (
        request.method.encode("ascii"),
        target.encode("utf-8", "surrogateescape"),
        fields,
        framing,
    )
