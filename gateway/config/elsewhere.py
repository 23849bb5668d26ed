"""Keys that are known here by another name or in another place: what people bring with them.

From nginx, Envoy, Traefik, Kong and HAProxy; and from other sections of the same file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

_WORDS: Final = {
    "max_body": "body_limit body_size client_max_body_size max_body_size max_request_body_size "
    "max_request_bytes request_size_limit",
    "limit": "limit_req limit_req_zone rate rate_limit rate_limiting ratelimit requests_per_second "
    "rps throttle",
    "max_connections_per_ip": "limit_conn",
    "upstream": "backend cluster destination proxy_pass service url",
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
    "websocket": "enable_websockets upgrade_configs",
    "keepalive": "idle_connection_timeout keepalive_timeout",
    "connect": "connect_timeout",
    "first_byte": "read read_timeout response response_header_timeout",
    "idle": "idle_timeout",
    "add": "append insert",
    "remove": "delete del drop unset",
    "set": "overwrite put replace",
    "problem": "json",
}
"""What is known here, and what it is called elsewhere, in lower case with underscores."""

_IN_A_LIMIT: Final = {
    **dict.fromkeys(("burst", "bucket_size", "capacity"), "10/s burst 20"),
    **dict.fromkeys(("by", "key", "key_by", "limit_by", "per"), "10/s per header:X-API-Key"),
    **dict.fromkeys(
        ("interval", "period", "requests_per_unit", "unit", "window"), "10/s or 100/5m"
    ),
}
"""What elsewhere has a key of its own and here is a part of a limit's text."""

_NAMES: Final = {
    word: tuple(here for here, words in _WORDS.items() if word in words.split())
    for words in _WORDS.values()
    for word in words.split()
}


def called_here(word: str, here: Collection[str]) -> str:
    """What a key of another program is called among the keys that are known; or empty."""
    names = [name for name in _names(word) if name in here]
    if names:
        return f"here it is {' or '.join(names)}"
    is_part = "limit" in here and word in _IN_A_LIMIT
    return f"it is a part of the limit, such as limit: {_IN_A_LIMIT[word]}" if is_part else ""


def belongs(word: str, places: Mapping[str, Collection[str]]) -> str:
    """Where a key belongs, by the keys of each place; or empty."""
    home = _home(word, places)
    return f"it belongs {home}" if home else ""


def called_there(word: str, places: Mapping[str, Collection[str]]) -> str:
    """What a key of another program is called, and where it belongs; or empty."""
    homes = ((name, _home(name, places)) for name in _names(word))
    return next((f"here it is {name}, and belongs {home}" for name, home in homes if home), "")


def _names(word: str) -> Iterator[str]:
    snake = "".join(f"_{one.lower()}" if one.isupper() else one for one in word)
    yield from _NAMES.get(snake.replace("-", "_").lstrip("_"), ())


def _home(word: str, places: Mapping[str, Collection[str]]) -> str:
    for place, words in places.items():
        if word in words and word != "name":
            return place.replace("KEY", word)
    return ""
