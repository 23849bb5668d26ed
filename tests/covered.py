"""Which test covers a module that has no test file of its own name.

`gateway/a/b.py` is tested by `tests/a/test_b.py`. Where there is no such file, a row here names the
test file that covers the module instead: a path below `tests/`, and modules as dotted names below
`gateway`, with `*` for any name. `tests/test_architecture.py` checks that every module has one or
the other, that the file exists, that its imports (or the process it starts) lead to each of the
modules, and that no name is left over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COVERED: Final[Mapping[str, str]] = {
    "test_compiled.py": "base.build",
    "test_face.py": "__init__ base.moved",
    "admin/test_api.py": "admin.resources",
    "board/test_board.py": "board.bell",
    "config/explaining/test_differences.py": (
        "config.explaining.meaning config.explaining.notation config.explaining.options"
        " config.explaining.same_routes"
    ),
    "config/explaining/test_schema.py": "config.explaining.schema_listeners",
    "config/reading/test_source.py": "config.reading.nodes",
    "config/test_golden.py": (
        "base.errors config.checking.* config.explaining.* config.models.* config.reading.*"
        " config.values.* systems.*.capabilities systems.*.config"
        " systems.*.explaining"
    ),
    "config/test_spellings.py": "config.values.store_url",
    "e2e/test_clocks.py": "base.clock",
    "e2e/test_command.py": (
        "__main__ command.alone command.arguments command.cli command.comparing"
    ),
    "e2e/test_exceptions.py": (
        "routing.access routing.conditions routing.lists wiring.conditions wiring.inspection"
    ),
    "e2e/test_settled_costs.py": "limiter.costs wiring.costs",
    "e2e/test_tiers.py": "limiter.tiers routing.tiers wiring.sources wiring.tables",
    "wiring/test_lists.py": "wiring.file_source",
    "e2e/test_explain.py": "command.explaining wiring.inquiry",
    "e2e/test_reload.py": "command.asking command.printing wiring.changed_files",
    "e2e/test_one_story.py": "proxy.field_names wiring.field_names",
    "e2e/test_operations.py": "routing.methods",
    "e2e/test_socket_activation.py": "net.handover net.service_manager",
    "e2e/test_body_keys.py": "proxy.peeked_body",
    "e2e/test_tokens.py": "wiring.tokens",
    "e2e/test_own_answers.py": "proxy.direct_responses wiring.routes",
    "http/editing/test_template.py": "http.editing.fields proxy.changes",
    "http/editing/test_pages.py": "http.editing.plain_page",
    "importing/test_envoy_ratelimit.py": "importing.*",
    "library/test_limiter.py": "config.models.library library.*",
    "library/test_middlewares.py": "integrations.*",
    "library/test_misuse.py": "library.unawaited",
    "library/test_own_store.py": "stores.base stores.opening",
    "limiter/local/test_eventual.py": "limiter.local.* limiter.reports",
    "limiter/local/test_leases.py": "limiter.local.leasing limits.consistency_mode",
    "limiter/test_decider.py": "limiter.* stores.deadline stores.scripted stores.shards",
    "limiter/test_plan.py": "wiring.policies",
    "limits/test_every_algorithm.py": "limits.__init__ limits.decision limits.horizon limits.rate",
    "limits/test_notation.py": "limits.cursor limits.key_words limits.rewording",
    "limits/test_throttlex.py": "limits.key_overrides",
    "base/test_renewal.py": "net.tls.client net.tls.files net.tls.renewed net.tls.server",
    "observe/logs/test_access.py": "observe.logs.escape",
    "observe/metrics/test_exposition.py": "observe.metrics.*",
    "proxy/client/test_connection.py": "base.deadlines net.client_socket proxy.client.*",
    "proxy/client/test_connections.py": "proxy.upstream.small_buffer_reader",
    "proxy/client/test_listener.py": "wiring.listeners",
    "proxy/test_forward.py": "proxy.*",
    "proxy/test_grpc.py": "proxy.upstream.grpc_health",
    "proxy/test_head.py": "routing.fields routing.forwarding",
    "proxy/test_http2.py": (
        "proxy.client.http2.connection proxy.client.http2.receiver proxy.client.http2.stream"
        " proxy.client.protocol_choice"
    ),
    "proxy/test_http2_upstreams.py": (
        "proxy.upstream.http1_connection proxy.upstream.http2.*"
        " proxy.http2.client_framing proxy.http2.framing proxy.http2.lines"
    ),
    "proxy/test_in_flight.py": "limiter.lease_keeper",
    "proxy/test_tls.py": "net.tls.handshake",
    "proxy/test_unread_answers.py": "net.unsent",
    "proxy/upstream/balancing/test_balancers.py": (
        "proxy.upstream.balancing.candidate proxy.upstream.balancing.consistent_hash"
        " proxy.upstream.balancing.least_requests proxy.upstream.balancing.random_two"
        " proxy.upstream.balancing.round_robin"
    ),
    "proxy/upstream/balancing/test_target_health.py": "proxy.upstream.balancing.*",
    "proxy/upstream/test_answer_reader.py": "proxy.http1.*",
    "proxy/upstream/test_names.py": "proxy.upstream.addresses proxy.upstream.connecting",
    "proxy/upstream/test_pool.py": "proxy.upstream.connection proxy.upstream.targets",
    "proxy/upstream/test_retry.py": "proxy.upstream.read_after_reset",
    "routing/test_keys.py": "routing.request_view routing.values",
    "routing/test_table.py": "routing.path_index",
    "stores/memory/test_forgotten.py": "limits.condensed",
    "stores/memory/test_store.py": "stores.memory.*",
    "stores/mysql/test_faults.py": "stores.mysql.*",
    "stores/redis/test_faults.py": (
        "stores.heartbeat stores.reconnecting stores.redis.* stores.settings"
    ),
    "stores/redis/test_store.py": "stores.tls_options",
    "stores/shared/test_store.py": "stores.shared.server",
    "stores/test_reports.py": "stores.redis.relay stores.redis.reports",
    "stores/test_urls.py": (
        "stores.capabilities stores.kinds stores.memory.url stores.mysql.url stores.redis.url"
        " systems.*.store_url"
    ),
    "systems/envoy/test_asking.py": "systems.envoy.*",
    "systems/grpc/test_server.py": "systems.grpc.*",
    "systems/grpc/test_tls.py": "net.tls.texts",
    "systems/ratio/test_listener.py": "systems.asking systems.base",
    "systems/smockron/test_listener.py": "systems.open_files systems.smockron.*",
    "systems/smockron/test_zeromq.py": "systems.smockron.zeromq_peers",
    "systems/test_changing.py": "wiring.frontends",
    "systems/test_sharing.py": "net.binding wiring.worker_resources workers.files",
    "systems/test_unix_listeners.py": "systems.listeners",
    "systems/throttr/test_listener.py": "systems.throttr.client_connection",
    "systems/throttr/test_listener_redis.py": "systems.throttr.records_store",
    "systems/throttr/test_programs.py": "systems.throttr.codec* systems.throttr.memory_v*",
    "systems/throttr/test_store_faults.py": (
        "systems.throttr.heartbeat systems.throttr.pipe systems.throttr.server_connection"
    ),
    "wiring/test_gateway.py": "wiring.admin net.start_errors wiring.limiter",
    "wiring/test_reload.py": "wiring.client_listeners wiring.running",
    "workers/test_admin.py": "workers.reports",
    "workers/test_reader.py": "base.threads wiring.reading",
    "workers/test_supervisor.py": "workers.*",
}
