"""Where policies come from: Python, YAML and plain data say the same, and are checked alike."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import gateway
from gateway import Limiter, Policy
from gateway.base.errors import ConfigError
from gateway.config.models.gateway import PolicyConfig
from gateway.library.policies import PolicyOptions

GATEWAY = """
listen: 127.0.0.1:8080
store: redis://127.0.0.1:6379/0
domain: shop
policies:
  pay: 10/s burst 20 per header:X-API-Key
routes:
  /v1/pay: { upstream: http://127.0.0.1:9000, policies: [pay] }
  /v1/login: { upstream: http://127.0.0.1:9000, limit: 5/m }
"""


def problems(make: Any) -> list[str]:
    """What is wrong, as text."""
    with pytest.raises(ConfigError) as caught:
        make()
    return [str(problem) for problem in caught.value.problems]


def test_python_yaml_and_data_say_the_same() -> None:
    """The same policies, in three ways."""
    python = Limiter(Policy("pay", "10/s burst 20", "1000/h per all", on_store_error="open"))
    text = Limiter.from_yaml(
        "policies: { pay: { limits: [10/s burst 20, 1000/h per all], on_store_error: open } }"
    )
    data = Limiter.from_mapping(
        {
            "policies": {
                "pay": {"limits": ["10/s burst 20", "1000/h per all"], "on_store_error": "open"}
            }
        }
    )
    assert python.config.policies == text.config.policies == data.config.policies


def test_a_gateways_file_will_do(tmp_path: Path) -> None:
    """Its policies, those of its routes too, its store and its domain are taken."""
    path = tmp_path / "sluice.yaml"
    path.write_text(GATEWAY)
    limiter = Limiter.from_file(path)
    assert set(limiter.config.policies) == {"pay", "/v1/login"}
    assert limiter.config.domain == "shop"
    assert limiter.config.store.url == "redis://127.0.0.1:6379/0"


def test_variables_come_from_where_the_caller_says(tmp_path: Path) -> None:
    """Never from the process's environment behind his back."""
    path = tmp_path / "sluice.yaml"
    path.write_text("policies: { pay: '${RATE:-1/s}' }")
    found = Limiter.from_file(path, environ={"RATE": "7/s"}).config.policies["pay"]
    assert found.limits[0].limit.count == 7
    assert Limiter.from_file(path).config.policies["pay"].limits[0].limit.count == 1


def test_everything_that_is_wrong_is_said_at_once() -> None:
    """With its path, the value found and the fix; in a file with its position too."""
    options: dict[str, Any] = {"on_store_error": "opne"}
    found = problems(
        lambda: Limiter(Policy("a", "10/q"), Policy("b", "10/q", **options), store="rediss:/x")
    )
    assert [problem.split(": ")[1] for problem in found] == [
        "store",
        "policies.a.limits[0]",
        "policies.b.limits[0]",
        "policies.b.on_store_error",
    ]
    assert "did you mean open?" in found[3]
    (found_in_text,) = problems(lambda: Limiter.from_yaml("policies:\n  a: 10/q\n"))
    assert found_in_text.startswith("text:2:9: policies.a: 'q' is not a unit of time")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Limiter, "Limiter: policies: it is empty (add at least one)"),
        (lambda: Limiter.from_mapping({}), "policies is missing (for example policies: {pay: "),
        (lambda: Limiter(Policy("a", "1/s"), Policy("a", "2/s")), "two policies are named 'a'"),
        (lambda: Limiter.from_mapping({"policies": {"a": b"1/s"}}), "a value of type bytes"),
        (lambda: Limiter(Policy("a", "1/s"), ipv6_prefix=129), "ipv6_prefix: 129 is too large"),
    ],
)
def test_nothing_useless_is_accepted(make: Any, message: str) -> None:
    """No policies, two of one name, values that YAML does not have."""
    (found,) = problems(make)
    assert message in found


def test_what_is_odd_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """But it is not odd that no route uses a policy, where there are no routes."""
    with caplog.at_level(logging.WARNING):
        Limiter(Policy("a", "10/s", "20/s"))
    (record,) = caplog.records
    assert "this limit has no effect" in record.getMessage()


def test_policies_in_python_have_every_option() -> None:
    """The keywords of `Policy` are the fields of the configuration."""
    options = {name.rstrip("_") for name in get_type_hints(PolicyOptions)}
    assert options == set(PolicyConfig.model_fields) - {"limits"}
    policy = Policy("pay", "10/s", queue="off")
    assert repr(policy) == "Policy('pay', '10/s', queue='off')"


def test_the_face_is_what_it_says() -> None:
    """Every public name is there, and no other is made up."""
    for name in gateway.__all__:
        assert getattr(gateway, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Limter'"):
        getattr(gateway, "Limter")  # noqa: B009 - a type checker would not let it pass
