"""Which header fields of clients mean something to a configuration, and who may send them.

What is counted and what the upstream sees must be the same. So a field that never reaches the
upstream from a client is none for keys, routes and templates either; and one that they look at
reaches it in no spelling that they do not know.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.models.balancing import HashBy
from gateway.config.models.gateway import GatewayConfig
from gateway.http.editing.template import HEADER
from gateway.proxy.field_names import Hidden
from gateway.routing.forwarding import is_origin_field
from gateway.routing.spelling import Reserved, headers_of, reserved_name, spellings_of


def reserved_fields(config: GatewayConfig) -> Reserved:
    """Fields that clients may not send as they like, on any listener.

    Those that tell of clients' certificates in no spelling. Those that are counted, routed or
    balanced by in no other spelling than these know: `X_API_Key` is `X-API-Key` for applications
    behind CGI and WSGI, and would be a way round.
    """
    certificates = dict.fromkeys(_of_certificates(config), frozenset[bytes]())
    return {**spellings_of(_deciding(config)), **certificates}


def hidden_fields(config: GatewayConfig) -> Hidden:
    """Fields that a configuration looks at, and that never reach an upstream from a client."""
    certificates = _of_certificates(config)
    strangers: dict[str, None] = {}
    everyone: dict[str, None] = {}
    for name in (*_deciding(config), *_of_templates(config)):
        lower = name.lower()
        folded = reserved_name(lower.encode("ascii"))
        is_origin = is_origin_field(folded.decode("ascii"))
        if folded in certificates or (is_origin and folded.decode("ascii") != lower):
            everyone[lower] = None
        elif is_origin:
            strangers[lower] = None
    return Hidden((*strangers, *everyone), tuple(everyone))


def _deciding(config: GatewayConfig) -> Iterator[str]:
    """The names of fields that something is decided by."""
    for policy in config.policies.values():
        for line in policy.limits:
            yield from headers_of(line.per)
    for upstream in config.upstreams.values():
        if isinstance(upstream.balance, HashBy):
            yield from headers_of(upstream.balance.words)
    for route in config.routes:
        yield from route.headers


def _of_templates(config: GatewayConfig) -> Iterator[str]:
    for route in config.routes:
        for edits in (route.request_headers, route.response_headers):
            for template in (*edits.set.values(), *edits.add.values()):
                for name in template.names:
                    if name.startswith(HEADER):
                        yield name.removeprefix(HEADER)


def _of_certificates(config: GatewayConfig) -> frozenset[bytes]:
    return frozenset(
        reserved_name(name.encode("ascii"))
        for listener in config.listen
        if listener.tls is not None and listener.tls.client_headers is not None
        for name in listener.tls.client_headers.by_detail.values()
    )
