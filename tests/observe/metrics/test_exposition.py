"""What is counted arrives in a scrape, in a form that Prometheus reads, and bounded."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gateway.base.clock import ManualClock
from gateway.base.errors import (
    CLIENT_ERRORS,
    StoreError,
    StoreReplyError,
    StoreTimeout,
    StoreUnavailable,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.observe.metrics import GatewayMetrics, Histogram, MemoryMetrics, add, pieces
from gateway.observe.metrics.exposition import CHILDREN_PER_PIECE, SAMPLES_PER_PIECE, expose, render
from gateway.stores.redis import pipe as redis_pipe
from tests.observe.metrics.room import Room

DOCUMENT = Path(__file__).parents[3] / "docs" / "metrics.md"

OPENMETRICS = "application/openmetrics-text; version=1.0.0"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(metrics: GatewayMetrics, accept: str = "") -> Samples:
    """All samples by name and labels; a sample that is there twice is an error."""
    parse = parse_openmetrics if accept else parse_text
    samples: Samples = {}
    for family in parse(render(metrics, accept).decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """How `scrape` names a sample."""
    return name, frozenset(labels.items())


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_everything_counted_is_scraped(accept: str) -> None:
    """Each counter of each object has its sample, in both formats."""
    metrics = GatewayMetrics("1.2.3", ManualClock(5_000_000))
    route = metrics.route("/v1/pay")
    route.answered(200, 1_500)
    route.answered(200, 40_000_000)
    route.answered(429, 100)
    policy = metrics.policy("pay")
    policy.passed, policy.delayed, policy.refused, policy.skipped = 1, 2, 3, 4
    policy.store_error_passed, policy.store_error_refused = 5, 6
    policy.wait_us, policy.waiting = 2_500_000, 7
    upstream = metrics.upstream("web")
    upstream.requests, upstream.connections = 8, 9
    upstream.errors["timeout_connect"] += 10
    upstream.first_byte.observe(700)
    upstream.breaker = "half_open"
    target = upstream.target("10.0.0.1:80")
    target.requests, target.ejections, target.checks, target.checks_failed = 16, 17, 18, 19
    target.is_healthy, target.is_ejected = False, True
    store = metrics.store("redis")
    store.answered(20, 900)
    store.errors["timeout"] += 2
    store.breaker, store.is_ready, store.gateways = "open", False, 3
    metrics.store("new").is_follower = True
    metrics.store("new").missed = 15
    metrics.store("new").messages["DELAY_UNTIL", "heard"] = 26
    frontend = metrics.frontend("throttr")
    frontend.connections, frontend.open_connections = 20, 21
    frontend.answers["insert", "ok"] = 22
    frontend.malformed["unknown_type"] = 23
    frontend.records, frontend.record_bytes = 24, 25
    metrics.memory["pay"] = memory = MemoryMetrics()
    memory.keys, memory.evicted, memory.overflowed, memory.refused = 27, 28, 29, 30
    metrics.connections, metrics.clients_left = 11, 12
    metrics.client_errors["header_too_large"] += 13
    metrics.log.lines_dropped = 14

    samples = scrape(metrics, accept)

    expected = {
        key("sluice_requests_total", route="/v1/pay", status="200"): 2,
        key("sluice_requests_total", route="/v1/pay", status="429"): 1,
        key("sluice_request_duration_seconds_bucket", route="/v1/pay", le="0.0005"): 1,
        key("sluice_request_duration_seconds_bucket", route="/v1/pay", le="0.0025"): 2,
        key("sluice_request_duration_seconds_bucket", route="/v1/pay", le="30.0"): 2,
        key("sluice_request_duration_seconds_bucket", route="/v1/pay", le="+Inf"): 3,
        key("sluice_request_duration_seconds_count", route="/v1/pay"): 3,
        key("sluice_request_duration_seconds_sum", route="/v1/pay"): 40.0016,
        key("sluice_decisions_total", policy="pay", decision="pass"): 1,
        key("sluice_decisions_total", policy="pay", decision="delay"): 2,
        key("sluice_decisions_total", policy="pay", decision="refuse"): 3,
        key("sluice_decisions_total", policy="pay", decision="skip"): 4,
        key("sluice_decisions_total", policy="pay", decision="store_error_pass"): 5,
        key("sluice_decisions_total", policy="pay", decision="store_error_refuse"): 6,
        key("sluice_policy_wait_seconds_total", policy="pay"): 2.5,
        key("sluice_policy_waiting", policy="pay"): 7,
        key("sluice_listener_connections_total", listener="throttr"): 20,
        key("sluice_listener_open_connections", listener="throttr"): 21,
        key(
            "sluice_listener_answers_total", listener="throttr", operation="insert", answer="ok"
        ): 22,
        key("sluice_listener_malformed_total", listener="throttr", kind="unknown_type"): 23,
        key("sluice_listener_records", listener="throttr"): 24,
        key("sluice_listener_record_bytes", listener="throttr"): 25,
        key("sluice_memory_keys", policy="pay"): 27,
        key("sluice_memory_evicted_keys_total", policy="pay"): 28,
        key("sluice_memory_overflowed_requests_total", policy="pay"): 29,
        key("sluice_memory_refused_requests_total", policy="pay"): 30,
        key("sluice_upstream_requests_total", upstream="web"): 8,
        key("sluice_upstream_connections", upstream="web"): 9,
        key("sluice_upstream_errors_total", upstream="web", kind="timeout_connect"): 10,
        key("sluice_upstream_first_byte_seconds_bucket", upstream="web", le="0.0005"): 0,
        key("sluice_upstream_first_byte_seconds_bucket", upstream="web", le="0.001"): 1,
        key("sluice_upstream_breaker", upstream="web", state="half_open"): 1,
        key("sluice_upstream_breaker", upstream="web", state="open"): 0,
        key("sluice_target_requests_total", upstream="web", target="10.0.0.1:80"): 16,
        key("sluice_target_ejections_total", upstream="web", target="10.0.0.1:80"): 17,
        key("sluice_target_checks_total", upstream="web", target="10.0.0.1:80"): 18,
        key("sluice_target_checks_failed_total", upstream="web", target="10.0.0.1:80"): 19,
        key("sluice_target_healthy", upstream="web", target="10.0.0.1:80"): 0,
        key("sluice_target_ejected", upstream="web", target="10.0.0.1:80"): 1,
        key("sluice_store_decisions_total", store="redis"): 20,
        key("sluice_store_batches_total", store="redis"): 1,
        key("sluice_store_errors_total", store="redis", reason="timeout"): 2,
        key("sluice_store_missed_total", store="new"): 15,
        key("sluice_store_missed_total", store="redis"): None,
        key("sluice_store_messages_total", store="new", message="DELAY_UNTIL", outcome="heard"): 26,
        key("sluice_store_ready", store="redis"): 0,
        key("sluice_store_gateways", store="redis"): 3,
        key("sluice_store_breaker", store="redis", state="open"): 1,
        key("sluice_store_breaker", store="redis", state="closed"): 0,
        key("sluice_store_breaker", store="redis", state="half_open"): 0,
        key("sluice_store_call_duration_seconds_sum", store="redis"): 0.0009,
        key("sluice_client_connections"): 11,
        key("sluice_clients_left_total"): 12,
        key("sluice_client_errors_total", kind="header_too_large"): 13,
        key("sluice_log_lines_dropped_total"): 14,
        key("sluice_start_time_seconds"): 5,
    }
    assert {name: samples.get(name) for name in expected} == expected
    builds = [dict(labels) for name, labels in samples if name == "sluice_build_info"]
    assert [build["version"] for build in builds] == ["1.2.3"]


def test_counters_of_a_name_are_one_object() -> None:
    """A second request for a name continues the same counts."""
    metrics = GatewayMetrics()
    assert metrics.route("a") is metrics.route("a")
    assert metrics.policy("a") is metrics.policy("a")
    assert metrics.upstream("a") is metrics.upstream("a")
    assert metrics.store("a") is metrics.store("a")
    assert metrics.route("a") is not metrics.route("b")


def test_invented_statuses_share_a_series() -> None:
    """An upstream that makes up statuses does not make up series."""
    metrics = GatewayMetrics()
    route = metrics.route("r")
    for status in (99, 600, 999, 599):
        route.answered(status, 1)
    samples = scrape(metrics)
    assert samples[key("sluice_requests_total", route="r", status="other")] == 3
    assert samples[key("sluice_requests_total", route="r", status="599")] == 1


@given(durations=st.lists(st.integers(0, 100_000_000)))
def test_histogram_counts_at_or_below_its_bounds(durations: list[int]) -> None:
    """Each bucket holds what is at most its bound and above the one before."""
    histogram = Histogram((10, 1_000, 1_000_000))
    for duration in durations:
        histogram.observe(duration)
    edges = (-1, *histogram.bounds_us, 10**12)
    for index, count in enumerate(histogram.counts):
        assert count == sum(edges[index] < d <= edges[index + 1] for d in durations)
    assert histogram.sum_us == sum(durations)


@given(
    names=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")),
        min_size=1,
        max_size=3,
        unique=True,
    )
)
def test_any_name_survives_as_a_label(names: list[str]) -> None:
    """Quotes, backslashes, line breaks and letters of any script come back as they were."""
    metrics = GatewayMetrics()
    for name in names:
        metrics.policy(name).passed += 1
    samples = scrape(metrics)
    for name in names:
        assert samples[key("sluice_decisions_total", policy=name, decision="pass")] == 1


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_many_routes_come_in_pieces_that_read_as_one(accept: str) -> None:
    """A thousand routes are no single long step, and each family has its head once."""
    metrics = GatewayMetrics()
    for number in range(1000):
        metrics.route(f"/r{number}").answered(200, number)
    exposition = expose(metrics, accept)
    pieces = list(exposition.pieces)
    assert max(map(len, pieces)) < 30_000
    text = b"".join(pieces)
    assert text.count(b"# TYPE sluice_request_duration_seconds histogram") == 1
    assert text.endswith(b"# EOF\n") == bool(accept)
    assert len(
        [name for name, _ in scrape(metrics, accept) if name == "sluice_requests_total"]
    ) == (1000)


def _of_many(count: int, *, are_in_use: bool) -> GatewayMetrics:
    """What a gateway counts that has so many of everything."""
    metrics = GatewayMetrics()
    for number in range(count):
        name = f"/v1/customers/{number}/invoices"
        route, policy, upstream = metrics.route(name), metrics.policy(name), metrics.upstream(name)
        metrics.memory[name] = memory = MemoryMetrics()
        upstream.breaker = "closed"
        for target in ("10.0.0.1:80", "10.0.0.2:80"):
            upstream.target(target)
        if are_in_use:
            route.answered(200, 1_000)
            policy.passed = upstream.requests = upstream.tunnel_sent = memory.keys = 1
            upstream.errors["connect"] += 1
            upstream.first_byte.observe(700)
    return metrics


@pytest.mark.parametrize("are_in_use", [False, True])
def test_no_piece_of_a_scrape_is_long(are_in_use: bool) -> None:
    """Whatever there are thousands of, some 180 samples or 256 things are taken at a time."""
    metrics = _of_many(2_000, are_in_use=are_in_use)
    refreshed: list[int] = [0]

    def refresh() -> None:
        refreshed[0] += 1

    for upstream in metrics.upstreams.values():
        upstream.refresh = refresh
    for piece in expose(metrics).pieces:
        samples = [line for line in piece.splitlines() if not line.startswith(b"#")]
        assert len(samples) < SAMPLES_PER_PIECE + 20
        assert refreshed[0] <= CHILDREN_PER_PIECE
        refreshed[0] = 0


def test_what_never_counted_takes_next_to_no_room() -> None:
    """A route, a policy and an upstream without requests are present at zero, for alerts."""
    metrics = GatewayMetrics()
    empty = len(render(metrics))
    name = ""
    for number in range(1_000):
        name = f"/v1/customers/{number}/invoices"
        metrics.route(name), metrics.policy(name), metrics.upstream(name)
    samples = scrape(metrics)
    last = {("route", name), ("policy", name)}
    ours = {sample for sample, labels in samples if labels & last}
    assert ours == {"sluice_decisions_total"}
    assert samples[key("sluice_decisions_total", policy=name, decision="pass")] == 0
    assert samples[key("sluice_decisions_total", policy=name, decision="refuse")] == 0
    assert samples[key("sluice_upstream_requests_total", upstream=name)] == 0
    assert len(render(metrics)) - empty < 1_000 * 300


def test_what_never_counted_is_not_told_to_others() -> None:
    """Each of several processes shows its own counts: a route without requests has none."""
    room = Room()
    process = room.process()
    for number in range(100):
        process.route(f"/{number}")
    assert room.used < 200
    process.route("/r").answered(200, 5)
    assert room.total().routes.keys() == {"/r"}
    assert not [kind for kind, *_ in pieces(process) if kind == "route"]


def test_content_type_follows_accept() -> None:
    """OpenMetrics only where it is asked for; whatever else is asked for is plain text."""
    metrics = GatewayMetrics()
    assert expose(metrics, "").content_type.startswith("text/plain; version=")
    assert expose(metrics, "*/*").content_type.startswith("text/plain; version=")
    assert expose(metrics, OPENMETRICS).content_type.startswith("application/openmetrics-text")


def test_document_names_every_metric_and_no_other() -> None:
    """The reference and the code cannot drift apart."""
    metrics = GatewayMetrics()
    metrics.route("r")
    metrics.policy("p")
    metrics.upstream("u").breaker = "closed"
    metrics.upstream("u").target("t")
    metrics.store("s")
    metrics.certificates["c.pem"] = 1
    metrics.frontend("throttr").records = 0
    metrics.memory["p"] = MemoryMetrics()
    scraped = set(re.findall(r"# TYPE (sluice_\w+) (\w+)", render(metrics).decode()))
    documented = re.findall(r"^\| `(sluice_\w+)`.*?\| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert set(documented) == scraped
    assert len(documented) == len(scraped)


def _calls(*names: str) -> Iterator[tuple[list[object], dict[str, object]]]:
    """Constant arguments, by position and by name, of every call of these in the package."""
    for path in (DOCUMENT.parent.parent / "gateway").glob("**/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names:
                yield (
                    [getattr(argument, "value", None) for argument in node.args],
                    {word.arg or "": getattr(word.value, "value", None) for word in node.keywords},
                )


def _section(heading: str) -> set[str]:
    """The words in code style in the tables of a section of the page."""
    section = DOCUMENT.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def test_every_reason_of_a_store_error_is_documented() -> None:
    """Reasons of errors, of answers of Redis, and those that the limiter counts itself."""
    classes = (StoreError, StoreTimeout, StoreUnavailable, StoreReplyError)
    reasons = {kind.reason for kind in classes}
    for arguments, _ in _calls(*(kind.__name__ for kind in classes)):
        reasons |= {reason for reason in arguments[1:] if isinstance(reason, str)}
    reasons |= {word.lower() for word in redis_pipe._UNAVAILABLE}
    for name in ("decider", "returns"):
        text = (DOCUMENT.parent.parent / "gateway" / "limiter" / f"{name}.py").read_text()
        reasons |= set(re.findall(r"errors\[\"(\w+)\"\]", text))

    assert _section("Reasons of store errors") == reasons


def test_every_kind_of_a_client_error_is_known_and_documented() -> None:
    """`CLIENT_ERRORS` matches the code and docs/logs.md."""
    kinds = {"syntax", "header_timeout", "send_timeout"}
    for _, named in _calls("BadRequestError"):
        kinds |= {kind for name, kind in named.items() if name == "kind" and isinstance(kind, str)}
    client = DOCUMENT.parent.parent / "gateway" / "proxy" / "client"
    listener = (client / "listener.py").read_text()
    kinds |= set(re.findall(r"_failed\(\"(\w+)\"", listener))
    page = DOCUMENT.with_name("logs.md").read_text().partition("## Errors\n")[2]
    table = page.partition("\n## ")[0]

    assert kinds == set(CLIENT_ERRORS)
    assert kinds <= set(re.findall(r"`(\w+)`", table))


def test_every_kind_of_an_upstream_error_is_documented() -> None:
    """The kinds of the classes, and a timeout's of each phase."""
    kinds = {kind.kind for kind in UpstreamError.__subclasses__() if kind is not UpstreamTimeout}
    phases = ("connect", "first_byte", "idle", "total", "queue")
    kinds |= {UpstreamTimeout(phase).kind for phase in phases}
    row = next(line for line in DOCUMENT.read_text().splitlines() if "upstream_errors" in line)

    assert kinds <= set(re.findall(r"`(\w+)`", row))


def counted(seed: int, metrics: GatewayMetrics | None = None) -> GatewayMetrics:
    """A gateway that has counted something of everything."""
    metrics = metrics or GatewayMetrics("1", ManualClock(1))
    for name in ("/a", "/b")[: 1 + seed % 2]:
        metrics.route(name).answered(200 + seed, 1_000 * seed)
    policy = metrics.policy("p")
    policy.passed, policy.refused, policy.wait_us, policy.waiting = seed, 2 * seed, 5, seed
    upstream = metrics.upstream("u")
    upstream.requests, upstream.connections = seed, 3 * seed
    upstream.errors["connect"] += seed
    upstream.first_byte.observe(700)
    upstream.breaker = "open" if seed == 2 else "closed"
    target = upstream.target("t")
    target.requests, target.ejections, target.checks, target.checks_failed = seed, 1, 9, 2
    target.is_healthy, target.is_ejected = seed != 2, seed == 2
    store = metrics.store("main")
    store.answered(seed, 900)
    store.errors["timeout"] += 1
    store.breaker = "open" if seed == 2 else "closed"
    store.is_ready = seed != 2
    store.gateways = seed
    store.is_follower, store.missed = True, seed
    store.messages["ACCEPTED", "sent"] = seed
    metrics.connections, metrics.clients_left, metrics.log.lines_dropped = seed, seed, seed
    metrics.client_errors["framing"] += seed
    metrics.config_reloads["failed"] += seed
    metrics.is_last_reload_applied = seed != 2
    metrics.upgrades_failed = seed
    memory = metrics.keys_of("p")
    memory.keys, memory.evicted, memory.overflowed, memory.refused = seed, 2, 3 * seed, 4
    metrics.settle()
    return metrics


NO_SUMS = (
    "_ready",
    "_successful",
    "_breaker",
    "_healthy",
    "_ejected",
    "_gateways",
    "_seconds",
    "_info",
    "_workers",
)
GAUGES = (
    "successful",
    "waiting",
    "keys",
    "connections",
    "ready",
    "breaker",
    "gateways",
    "healthy",
    "ejected",
)


def test_what_several_processes_counted_is_one_sum() -> None:
    """As JSON and back: counters and histograms are added, and so are gauges of numbers."""
    total = GatewayMetrics("1", ManualClock(1))
    for seed in (1, 2, 3):
        room = Room()
        for piece in json.loads(json.dumps(list(pieces(counted(seed, room.process()))))):
            add(total, piece)
        room.add_to(total)
    parts = [scrape(counted(seed)) for seed in (1, 2, 3)]
    summed = scrape(total)
    for name in {name for part in parts for name in part}:
        if not name[0].endswith(NO_SUMS):
            expected = sum(part.get(name, 0) for part in parts)
            assert summed[name] == pytest.approx(expected), name
    assert summed[key("sluice_config_last_reload_successful")] == 0
    assert summed[key("sluice_store_ready", store="main")] == 0
    assert summed[key("sluice_store_breaker", store="main", state="open")] == 1
    assert summed[key("sluice_store_gateways", store="main")] == 3
    assert summed[key("sluice_upstream_breaker", upstream="u", state="open")] == 1
    assert summed[key("sluice_target_healthy", upstream="u", target="t")] == 0
    assert summed[key("sluice_target_ejected", upstream="u", target="t")] == 1


def test_the_past_counts_and_is_not_shown_as_the_present() -> None:
    """What a process that is gone counted stays in the sum; its connections do not."""
    room = Room()
    counted(2, room.process())
    past, before = scrape(room.total()), scrape(counted(2))
    for name, value in before.items():
        is_gauge = any(word in name[0] for word in GAUGES) and "seconds" not in name[0]
        is_gauge = is_gauge and not name[0].endswith("_total")
        if not is_gauge:
            assert past[name] == value, name
    for gauge in ("sluice_client_connections", "sluice_upstream_connections"):
        assert [value for name, value in past.items() if name[0] == gauge] == [0]
    assert past[key("sluice_store_ready", store="main")] == 1
    assert past[key("sluice_target_healthy", upstream="u", target="t")] == 1
    assert past[key("sluice_target_ejected", upstream="u", target="t")] == 0
