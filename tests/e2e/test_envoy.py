"""A real Envoy asks Sluice, as it would ask its own rate limit service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from tests.certificates import Authority, Issued
from tests.conftest import StartGateway
from tests.envoy import Envoy
from tests.processes import Gateway, free_port
from tests.upstreams import Upstream

USER: Final = {"request_headers": {"header_name": "x-user", "descriptor_key": "user"}}
PER_USER: Final[Sequence[Mapping[str, Any]]] = [{"actions": [USER]}]
RULES: Final = """
listeners:
  - envoy_rls:
      {options}
      domains:
        shop:
          - {{ match: {{ user: "*" }}, limit: 3/h }}
          - {{ match: {{ user: "*", cost: high }}, limit: 4/h }}
          - {{ match: {{ user: foe }}, refuse: true }}
    bind: 127.0.0.1:{port}
"""

StartEnvoy = Callable[..., Envoy]


@pytest.fixture
def start_envoy(tmp_path: Path, nginx_upstream: Upstream) -> Iterator[StartEnvoy]:
    """Starts Envoys in front of nginx, which ask the service on a port."""
    running: list[Envoy] = []

    def start(
        service: int | Path,
        limits: Sequence[Mapping[str, Any]] = PER_USER,
        tls: tuple[Authority, Issued] | None = None,
        pools: Sequence[str] = (),
        *,
        checked: bool = False,
        **options: object,
    ) -> Envoy:
        upstream = int(nginx_upstream.url.rpartition(":")[2])
        envoy = Envoy(tmp_path, upstream, service, limits, options, tls, pools, checked=checked)
        running.append(envoy)
        return running[-1]

    yield start
    for envoy in running:
        envoy.server.stop()


def test_requests_pass_up_to_the_limit_and_are_refused_after(
    start_gateway: StartGateway, start_envoy: StartEnvoy
) -> None:
    """With our fields in the answers, and Envoy's own beside them."""
    port = free_port()
    start_gateway(RULES.format(port=port, options="headers: envoy"))
    envoy = start_envoy(port, enable_x_ratelimit_headers="DRAFT_VERSION_03")
    answers = [envoy.get("/one", headers={"x-user": "ann"}) for _ in range(5)]

    assert [one.status for one in answers] == [200, 200, 200, 429, 429]
    assert [one.headers["ratelimit-limit"] for one in answers] == ["3"] * 5
    assert [one.headers["ratelimit-remaining"] for one in answers] == ["2", "1", "0", "0", "0"]
    assert answers[0].headers["ratelimit-reset"] == "1200"
    assert 1190 <= int(answers[3].headers["retry-after"]) <= 1200
    assert "retry-after" not in answers[2].headers
    assert answers[3].headers["x-envoy-ratelimited"] == "true"
    assert answers[0].headers["x-ratelimit-limit"] == "3, 3;w=3600"
    assert answers[0].headers["x-ratelimit-remaining"] == "2"
    assert answers[3].body == b""
    assert envoy.get("/one", headers={"x-user": "ben"}).status == 200
    assert envoy.get("/one").status == 200, "there is no descriptor without its header"


def test_envoy_takes_limits_whose_period_is_no_unit_of_time(
    start_gateway: StartGateway, start_envoy: StartEnvoy
) -> None:
    """It says how many, and leaves out in which time."""
    port = free_port()
    start_gateway(RULES.format(port=port, options="shadow: off").replace("3/h", "3/5m"))
    envoy = start_envoy(port, enable_x_ratelimit_headers="DRAFT_VERSION_03")
    answers = [envoy.get("/one", headers={"x-user": "ann"}) for _ in range(4)]
    refused = envoy.get("/one", headers={"x-user": "foe"})

    assert [one.status for one in (*answers, refused)] == [200, 200, 200, 429, 429]
    assert [one.headers["x-ratelimit-limit"] for one in answers] == ["3"] * 4
    assert [one.headers["x-ratelimit-remaining"] for one in answers] == ["2", "1", "0", "0"]
    assert 90 <= int(answers[3].headers["x-ratelimit-reset"]) <= 100
    assert refused.headers["x-ratelimit-limit"] == "0"


def test_a_refusal_may_have_a_body(
    start_gateway: StartGateway, start_envoy: StartEnvoy, tmp_path: Path
) -> None:
    """A problem document says so; the service may be behind a socket of this machine."""
    path = tmp_path / "rls.sock"
    rules = RULES.format(port=0, options="body: problem")
    start_gateway(rules.replace("bind: 127.0.0.1:0", f"bind: unix:{path}"))
    answer = start_envoy(path).get("/one", headers={"x-user": "foe"})

    assert answer.status == 429
    assert answer.headers["content-type"] == "application/problem+json"
    assert b'"status": 429' in answer.body


def test_a_request_may_cost_more_than_one(
    start_gateway: StartGateway, start_envoy: StartEnvoy
) -> None:
    """Each descriptor may say so itself; all of them must agree."""
    port = free_port()
    start_gateway(RULES.format(port=port, options="shadow: off"))
    high = {"generic_key": {"descriptor_key": "cost", "descriptor_value": "high"}}
    limits = [{"actions": [USER]}, {"actions": [USER, high], "hits_addend": {"number": 2}}]
    envoy = start_envoy(port, limits)

    assert [envoy.get("/one", headers={"x-user": "ann"}).status for _ in range(3)] == [
        200,
        200,
        429,
    ]
    envoy = start_envoy(port)
    assert [envoy.get("/one", headers={"x-user": "ann"}).status for _ in range(2)] == [200, 429]


def test_without_sluice_envoy_does_as_it_was_told(
    start_gateway: StartGateway, start_envoy: StartEnvoy
) -> None:
    """It lets everything through, unless it is to refuse then; and finds Sluice when it is back."""
    port = free_port()
    allows = start_envoy(port)
    denies = start_envoy(port, failure_mode_deny=True)
    assert allows.get("/one", headers={"x-user": "foe"}).status == 200
    assert denies.get("/one", headers={"x-user": "ann"}).status == 500

    start_gateway(RULES.format(port=port, options="shadow: off"))
    assert _until(denies, {"x-user": "ann"}, 200)
    assert _until(allows, {"x-user": "foe"}, 429)


def test_a_cluster_may_check_the_health_of_the_service_by_its_name(
    start_gateway: StartGateway, start_envoy: StartEnvoy
) -> None:
    """It is asked for `ratelimit`; one that is not well is not asked, and every request denied."""
    port = free_port()
    start_gateway(RULES.format(port=port, options="headers: envoy"))
    envoy = start_envoy(port, checked=True, failure_mode_deny=True)
    assert _until(envoy, {"x-user": "foe"}, 429)


def test_envoy_may_give_back_what_a_request_did_not_cost(
    start_gateway: StartGateway, start_envoy: StartEnvoy
) -> None:
    """At the end of a stream, with hits that are negative."""
    port = free_port()
    start_gateway(RULES.format(port=port, options="shadow: off"))
    refund = {"number": 1, "is_negative_hits": True}
    limits = [
        {"actions": [USER]},
        {"actions": [USER], "apply_on_stream_done": True, "hits_addend": refund},
    ]
    envoy = start_envoy(port, limits)

    assert [envoy.get("/one", headers={"x-user": "ann"}).status for _ in range(8)] == [200] * 8


def _until(envoy: Envoy, headers: Mapping[str, str], status: int) -> bool:
    """Whether Envoy comes to answer so: it connects again after a while."""
    return any(envoy.get("/one", headers=headers).status == status for _ in range(2000))


def test_envoy_and_the_service_show_each_other_certificates(
    start_gateway: StartGateway, start_envoy: StartEnvoy, authority: Authority, stranger: Authority
) -> None:
    """One that has another authority's is not answered."""
    port, shown = free_port(), authority.issue("a.test")
    tls = f"cert: {shown.cert}, key: {shown.key}, client_ca: {authority.file}"
    more = f"    tls: {{ {tls}, client_certificates: required }}\n"
    start_gateway(RULES.format(port=port, options="headers: envoy") + more)
    trusted = start_envoy(port, tls=(authority, authority.issue("envoy")))
    foreign = start_envoy(port, tls=(authority, stranger.issue("envoy")), failure_mode_deny=True)

    answers = [trusted.get("/one", headers={"x-user": "ann"}).status for _ in range(4)]
    assert answers == [200, 200, 200, 429]
    assert foreign.get("/one", headers={"x-user": "ben"}).status == 500


def test_a_request_goes_on_with_the_quota_that_has_something_left(
    start_gateway: StartGateway, start_envoy: StartEnvoy
) -> None:
    """Which one that is Envoy reads in the metadata of its rule."""
    port = free_port()
    start_gateway(
        f"""
listeners:
  - envoy_rls:
      dynamic_metadata: on
      domains:
        shop:
          - {{ match: {{ user: "*" }}, limit: 1/h, quota: on, metadata: {{ pool: own }} }}
          - {{ match: {{ pool: shared }}, limit: 2/h, quota: on, metadata: {{ pool: shared }} }}
    bind: 127.0.0.1:{port}
"""
    )
    shared = {"generic_key": {"descriptor_key": "pool", "descriptor_value": "shared"}}
    envoy = start_envoy(port, [{"actions": [USER]}, {"actions": [shared]}])

    answers = [envoy.get("/one", headers={"x-user": "ann"}) for _ in range(3)]
    assert [one.status for one in answers] == [200, 200, 429]
    assert [one.headers.get("x-pool", "") for one in answers] == ["own", "shared", ""]


def _service(name: str, hits: int, *, is_done: bool = False) -> dict[str, Any]:
    """A limit of Envoy's: the quota of a service; looked at, or used and told at the end."""
    key = {"generic_key": {"descriptor_key": "service", "descriptor_value": name}}
    return {"actions": [key], "hits_addend": {"number": hits}, "apply_on_stream_done": is_done}


def test_tokens_are_told_at_the_end_and_count_beyond_the_limit(
    start_gateway: StartGateway, start_envoy: StartEnvoy, store: str
) -> None:
    """A request passes as long as nothing is owed: the example `token-quota` of Envoy's service.

    There each costs one of two; here each costs 700 of 1,000, so that the second exceeds them.
    """
    port = free_port()
    gateway = start_gateway(
        f"""
{store}listeners:
  - envoy_rls:
      domains:
        shop:
          - match: {{ service: "*" }}
            limit: 1000/365d
    bind: 127.0.0.1:{port}
"""
    )
    envoy = start_envoy(port, [_service("s", 0), _service("s", 700, is_done=True)])
    answers = []
    for told in (2, 4, 6, 8):
        answers.append(envoy.get("/one").status)
        # A look before each request and a debit after it; also where the look has refused it.
        _told(gateway, told)

    assert answers == [200, 200, 429, 429]


def test_the_quota_of_the_service_that_answered_is_used(
    start_gateway: StartGateway, start_envoy: StartEnvoy
) -> None:
    """The example `multiservice-tokenquota` of Envoy's service, with one and two requests.

    One more passes of each than its quota, as what is used is known afterwards only.
    """
    port = free_port()
    gateway = start_gateway(
        f"""
listeners:
  - envoy_rls:
      dynamic_metadata: on
      domains:
        shop:
          - match: {{ service: service_1 }}
            limit: 1/365d
            algorithm: fixed_window
            quota: on
            metadata: {{ pool: service_1 }}
          - match: {{ service: service_2 }}
            limit: 2/365d
            algorithm: fixed_window
            quota: on
            metadata: {{ pool: service_2 }}
    bind: 127.0.0.1:{port}
"""
    )
    answered = {
        "metadata": {
            "descriptor_key": "service",
            "source": "CLUSTER_LOCALITY_ENTRY",
            "metadata_key": {"key": "pools", "path": [{"key": "name"}]},
        }
    }
    limits = [
        _service("service_1", 0),
        _service("service_2", 0),
        {"actions": [answered], "hits_addend": {"number": 1}, "apply_on_stream_done": True},
    ]
    envoy = start_envoy(port, limits, pools=["service_1", "service_2"])
    answers = []
    for told in (2, 4, 6, 8, 10, 11):
        answer = envoy.get("/one")
        answers.append(answer.body.decode() if answer.status == 200 else answer.status)
        _told(gateway, told)

    assert answers == ["service_1"] * 2 + ["service_2"] * 3 + [429]


def _told(gateway: Gateway, calls: int) -> None:
    """Wait until the service has answered so many calls: what is told at the end comes later."""
    due = time.monotonic() + 30
    while (seen := _calls(gateway)) < calls and time.monotonic() < due:
        time.sleep(0.01)
    assert seen == calls


def _calls(gateway: Gateway) -> int:
    text = requests.get(f"{gateway.admin_url}/metrics", timeout=10).text
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in text.splitlines()
        if line.startswith("sluice_listener_answers_total{")
    )
