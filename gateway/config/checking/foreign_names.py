"""Keys that have another name or another place here.

The keys come from nginx, Envoy, Traefik, Kong and HAProxy, and from other sections of the same
file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

_WORDS: Final = {
    "max_body": "body_limit body_size client_max_body_size max_body_size max_request_body_size "
    "max_request_bytes request_size_limit",
    "limit": "limit_req limit_req_zone rate rate_limit rate_limits rate_limiting ratelimit "
    "ratelimits requests_per_second rps throttle",
    "max_connections_per_ip": "limit_conn",
    "upstream": "backend cluster destination forward_to proxy_pass service target to url",
    "upstreams": "backends clusters services",
    "targets": "backends endpoints hosts lb_endpoints load_assignment nodes servers url urls",
    "balance": "lb lb_policy load_balancer load_balancing load_balancing_policy strategy",
    "health": "active_health_check check health_check health_checks healthcheck healthchecks",
    "eject": "max_fails outlier_detection passive_health_check",
    "breaker": "circuit_breaker circuit_breakers circuitbreaker",
    "retry": "num_retries proxy_next_upstream retries retry_on retry_policy",
    "timeouts": "proxy_connect_timeout proxy_read_timeout proxy_send_timeout request_timeout "
    "timeout",
    "upstream_host": "host_header host_rewrite host_rewrite_literal pass_host_header preserve_host",
    "rewrite": "path_rewrite prefix_rewrite regex_rewrite replace_path rewrite_path url_rewrite",
    "strip_prefix": "strip_path stripprefix",
    "add_prefix": "addprefix path_prefix",
    "request_headers": "custom_request_headers headers_to_add proxy_set_header "
    "request_headers_to_add set_header set_headers",
    "response_headers": "add_header add_headers custom_response_headers response_headers_to_add",
    "respond": "direct_response fixed_response response return",
    "error_pages": "custom_errors error_page errors",
    "cors": "cors_policy",
    "origins": "access_control_allow_origin_list allow_origin allow_origins allowed_origins",
    "credentials": "access_control_allow_credentials allow_credentials",
    "expose": "access_control_expose_headers expose_headers exposed_headers",
    "address": "bind port",
    "bind": "address listen port",
    "size": "value_size",
    "match": "key value",
    "listen": "bind entry_points entrypoints listener listeners port",
    "listeners": "frontends listener",
    "store": "redis",
    "methods": "http_methods method verb verbs",
    "host": "domain domains hostname hosts server_name vhost virtual_host",
    "path": "location match paths pattern prefix uri",
    "cert": "cert_file certfile certificate certificate_file ssl_certificate tls_cert",
    "key": "key_file keyfile private_key private_key_file ssl_certificate_key tls_key",
    "tls": "https ssl",
    "trusted_proxies": "real_ip set_real_ip_from trusted_ips xff_num_trusted_hops",
    "workers": "threads worker_processes",
    "log": "access_log accesslog logging logs",
    "allow": "allow_from allow_ips allow_list allowed_ips allowlist ip_allow ip_whitelist "
    "ipallowlist ipwhitelist only_from whitelist",
    "deny": "acl blacklist block block_list blocked blocklist deny_from deny_ips deny_list "
    "denylist ip_blacklist ip_deny ip_restriction",
    "except": "exceptions exclude excluded exempt skip unless",
    "only": "applies_to apply_to include included only_if when",
    "tiers": "plans levels",
    "client": "client_ip clients ip ips networks remote_addr remote_ip source_ip",
    "http2": "grpc h2 h2c http_2",
    "websocket": "enable_websockets upgrade_configs",
    "keepalive": "idle_connection_timeout keepalive_timeout",
    "connect": "connect_timeout",
    "first_byte": "read read_timeout response response_header_timeout",
    "idle": "idle_timeout",
    "add": "append insert",
    "remove": "delete del drop unset",
    "set": "overwrite put replace",
    "problem": "json",
    "admin": "metrics prometheus stats",
    "output": "destination file filename path",
    "level": "log_level loglevel severity",
    "format": "formatter log_format",
    "every": "interval period",
    "to": "location target url",
    "status": "code status_code",
    "body": "content text",
    "max": "capacity depth length max_length max_size size",
    "max_wait": "delay max_delay timeout wait",
    "queue": "delay queueing waiting",
}
"""Keys here, and their names elsewhere, in lower case with underscores."""

_IN_A_LIMIT: Final = {
    **dict.fromkeys(("burst", "bucket_size", "capacity"), "10/s burst 20"),
    **dict.fromkeys(("by", "key", "key_by", "limit_by", "per"), "10/s per header:X-API-Key"),
    **dict.fromkeys(
        ("average", "interval", "period", "requests", "requests_per_unit", "unit", "window"),
        "10/s or 100/5m",
    ),
}
"""Keys of other programs that are part of a limit's text here."""

_NOT_HERE: Final = {
    "authentication": "auth auth_basic authentication basic_auth basicauth forward_auth jwt oauth "
    "oidc",
    "caching": "cache caching proxy_cache",
    "compression": "brotli compress compression gzip zstd",
    "HTTP/3": "http3 quic",
    "certificates by ACME": "acme auto_https cert_resolver certresolver letsencrypt",
    "plug-ins": "filters middleware middlewares plugin plugins",
    "tracing": "opentelemetry otel tracing",
    "mirroring": "mirror shadow",
    "templates": "lua script scripts snippets",
}
"""Features of other programs that are not supported, and the words for them."""

_VALUES: Final = {
    "gcra": ("token_bucket", "which decides as GCRA does"),
    "leaky_bucket": ("token_bucket", "with queue for requests that a leaky bucket would delay"),
    "leakybucket": ("token_bucket", "with queue for requests that a leaky bucket would delay"),
    "sliding_window": ("sliding_window_counter", "or the exact sliding_window_log"),
    "sliding": ("sliding_window_counter", "or the exact sliding_window_log"),
    "allow": ("open", ""),
    "fail_open": ("open", ""),
    "pass": ("open", ""),
    "deny": ("closed", ""),
    "block": ("closed", ""),
    "reject": ("closed", ""),
    "refuse": ("closed", ""),
    "fail_closed": ("closed", ""),
    # 403 tells a client that retrying is useless (RFC 9110, section 15.5.4).
    "403": ("429", "or 503: over a limit, retrying later helps"),
    "fail_close": ("closed", ""),
}
"""Values of a key that have another name elsewhere, and the hint for each."""

_HABITS: Final = {
    "include": "put the files into one folder: sluice run FOLDER",
    "includes": "put the files into one folder: sluice run FOLDER",
    "import": "put the files into one folder: sluice run FOLDER",
    "extends": "put the files into one folder: sluice run FOLDER",
    "clients": "the key to count by is part of the limit: limit: 10/s per header:X-API-Key",
    "consumers": "the key to count by is part of the limit: limit: 10/s per header:X-API-Key",
    "users": "the key to count by is part of the limit: limit: 10/s per header:X-API-Key",
    "status": "for refusals: on_limit: {status: 503}; for a fixed one: respond: {status: 403}",
    "status_code": "for refusals: on_limit: {status: 503}; for a fixed one: respond: {status: 403}",
    "version": "not supported; remove it",
    "apiVersion": "remove it: a configuration has listen, routes, policies and so on at the top",
    "kind": "remove it: a configuration has listen, routes, policies and so on at the top",
    "http": "remove this level: listen, routes and policies are at the top of the file",
    "policy": "write policies: [NAME]",
    "nodelay": "remove it: without a queue, requests over the limit are refused immediately",
}
"""Common mistakes, and how to fix them."""

_NAMES: Final = {
    word: tuple(here for here, words in _WORDS.items() if word in words.split())
    for words in _WORDS.values()
    for word in words.split()
}


def local_name(word: str, here: Collection[str]) -> str:
    """Return the names here of a key of another program; or empty."""
    names = [name for name in _names(word) if name in here]
    if names:
        return f"it is called {' or '.join(names)} here"
    is_part = "limit" in here and word in _IN_A_LIMIT
    return f"it is part of the limit, for example limit: {_IN_A_LIMIT[word]}" if is_part else ""


def local_value(found: object, here: Collection[str]) -> str:
    """Return the name here of another program's value; or empty."""
    name, more = _VALUES.get(_snake(str(found).lower()), ("", ""))
    return f"use {name}{', ' if more else ''}{more}" if name in here else ""


def common_mistake(word: str) -> str:
    """Return the hint for a common mistake or a missing feature; or empty.

    Use it last, because many of these words are valid in other places.
    """
    if word in _HABITS:
        return _HABITS[word]
    snake = _snake(word)
    feature = next((name for name, words in _NOT_HERE.items() if snake in words.split()), "")
    return f"{feature}: not supported" if feature else ""


def belongs(word: str, places: Mapping[str, Collection[str]]) -> str:
    """Return where a key belongs, given the keys of each place; or empty."""
    home = _home(word, places)
    return f"it belongs {home}" if home else ""


def local_place(word: str, places: Mapping[str, Collection[str]]) -> str:
    """Return the name here of another program's key, and where it belongs; or empty."""
    homes = ((name, _home(name, places)) for name in _names(word))
    return next(
        (f"it is called {name} here, and belongs {home}" for name, home in homes if home), ""
    )


def _names(word: str) -> Iterator[str]:
    yield from _NAMES.get(_snake(word), ())


def _snake(word: str) -> str:
    snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in word)
    return snake.replace("-", "_").lstrip("_")


def _home(word: str, places: Mapping[str, Collection[str]]) -> str:
    for place, words in places.items():
        if word in words and word != "name":
            return place.replace("KEY", word)
    return ""
