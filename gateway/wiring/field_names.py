"""Which header fields of clients a configuration uses, and which peers may send them.

The gateway must count by the same fields that the upstream sees. So keys, routes and templates
ignore fields that are never forwarded from a client, and fields that they use are forwarded in no
other spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.config.checking.key_checks import words_of
from gateway.config.models.balancing import HashBy
from gateway.config.models.gateway import GatewayConfig
from gateway.http.editing.template import HEADER
from gateway.proxy.field_names import Hidden
from gateway.routing.conditions import ORIGIN, REQUESTED_METHOD
from gateway.routing.forwarding import is_origin_field
from gateway.routing.spelling import Reserved, headers_of, reserved_name, spellings_of


def reserved_fields(config: GatewayConfig) -> Reserved:
    """Return fields that are restricted for clients, on every listener.

    Fields that describe clients' certificates are not accepted in any spelling. Fields used for
    keys, routes or balancing are only accepted in the exact spelling: for applications behind CGI
    and WSGI, `X_API_Key` is the same as `X-API-Key`, and would bypass the limit.
    """
    certificates = dict.fromkeys(_of_certificates(config), frozenset[bytes]())
    return {**spellings_of(_deciding(config)), **certificates}


def hidden_fields(config: GatewayConfig) -> Hidden:
    """Return fields that a configuration uses, and that are never forwarded from a client."""
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


def limiting_fields(config: GatewayConfig) -> Iterator[str]:
    """Yield the names of fields that requests are counted by, or not counted because of."""
    for name, policy in config.policies.items():
        words = [word for _, word in words_of(name, policy)]
        yield from headers_of(words)
        yield from _of_tokens(config, words)
        for condition in policy.conditions:
            yield from condition.headers
            if condition.preflight:
                yield from (ORIGIN, REQUESTED_METHOD)
    yield from headers_of(one.per for one in config.lists.values())


def _of_tokens(config: GatewayConfig, per: Iterable[str]) -> Iterator[str]:
    """Yield the field that has the token, if claims of it are among some key words."""
    if config.jwt is not None and any(word.startswith("jwt:") for word in per):
        yield from headers_of([config.jwt.word])


def _deciding(config: GatewayConfig) -> Iterator[str]:
    """The names of fields that something is decided by."""
    yield from limiting_fields(config)
    if config.preflight is not None:
        yield from (ORIGIN, REQUESTED_METHOD)
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
