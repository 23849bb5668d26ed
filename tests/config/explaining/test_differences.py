"""What another configuration would change: every option is told, and a spelling changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from gateway.config.checking.check import check_text
from gateway.config.explaining.differences import changes, differences, needs_restart
from gateway.config.explaining.schema import models
from gateway.config.models.gateway import GatewayConfig

OLD = """
routes:
  /a: { upstream: http://x:80, limit: 100/s per ip }
  /b: { upstream: web, policies: [p] }
  /gone: { respond: 404 }
upstreams: { web: { targets: [http://a:1, http://b:1], timeouts: { connect: 1s } } }
policies:
  p: { limits: ["5/h burst 5 per header:X-Key"], queue: { max: 3, max_wait: 2s } }
server: { max_body: 1MiB }
"""
NEW = """
listen: [":8080", { address: ":8443", redirect_to_https: true }]
routes:
  /a: { upstream: http://x:80, limit: 50/s per ip, max_body: 2MiB }
  /b: { upstream: web, policies: [p] }
  /new: { respond: 404 }
upstreams:
  web:
    targets: [http://a:1, { url: http://c:1, weight: 3 }]
    timeouts: { connect: 1500ms }
    health: /healthz
policies:
  p: { limits: ["6/h burst 5 per header:X-Key"] }
server: { max_body: 8MiB, min_rate: off, workers: 2 }
store: redis://:secret@r/0
listeners: [{ bind: ":9000", throttr: v5 }]
"""
SENTENCES = """\
Route /gone is gone.
Route /new is new.
Route /a: max_body: none becomes 2MiB.
Policy p: queue: {max: 3, max_wait: 2s} becomes none; limits: 5/h burst 5 per header:X-Key becomes \
6/h burst 5 per header:X-Key. It applies to /b.
Policy /a: limits: 100/s per ip becomes 50/s per ip.
Upstream web: targets: http://a:1 and http://b:1 becomes http://a:1 and http://c:1 (weight 3); \
timeouts.connect: 1s becomes 1500ms; health: none becomes {path: /healthz}.
Listener 127.0.0.1:8080 is gone.
Listener :8080 is new.
Listener :8443 is new.
Listener throttr at :9000 is new.
store.url: memory:// becomes redis://***@r/0.
Counts begin anew, unless they were in the new store before.
server.min_rate: 50B/s becomes none.
server.max_body: 1MiB becomes 8MiB.
server.workers: 1 becomes 2. It takes effect after a restart or an upgrade only.
"""
FIELDS = [
    (name, model, field)
    for name, model in sorted(models(GatewayConfig).items())
    for field in model.model_fields
    if model is not GatewayConfig
]


def config(text: str) -> GatewayConfig:
    """A checked configuration."""
    return check_text(text).config


def test_what_changes_in_sentences() -> None:
    """With the notation of the file, by the names that the file has; passwords are hidden."""
    assert "\n".join(differences(config(OLD), config(NEW))) + "\n" == SENTENCES


def test_the_same_is_no_difference() -> None:
    """Nor are defaults that are written out, and other spellings of one meaning."""
    plain = "routes:\n  /a: { upstream: http://x:80, limit: 100/s per ip }\n"
    spelt = (
        "listen: 127.0.0.1:8080\nserver: { max_waiting: 10000, header_timeout: 10000ms }\n"
        "routes:\n  /a: { upstream: http://x:80, limit: 100/s per ip }\n"
    )
    assert differences(config(OLD), config(OLD)) == []
    assert differences(config(NEW), config(NEW)) == []
    assert differences(config(plain), config(spelt)) == []


def test_an_order_that_matters_is_told() -> None:
    """That of the routes decides which is found first."""
    one = "routes:\n  /a: { respond: 404 }\n  /b: { respond: 404 }\n"
    other = "routes:\n  /b: { respond: 404 }\n  /a: { respond: 404 }\n"
    assert differences(config(one), config(other)) == ["The order of the routes has changed."]


def test_what_takes_a_restart() -> None:
    """The number of processes."""
    one = config(OLD)
    assert needs_restart(one, one) == []
    assert needs_restart(one, config(NEW)) == ["server.workers: 1 becomes 2."]


@pytest.mark.parametrize(("name", "model", "field"), FIELDS)
def test_every_option_is_told(name: str, model: type[BaseModel], field: str) -> None:
    """A change of any field of any model has a sentence that names the option."""
    values: dict[str, Any] = dict.fromkeys(model.model_fields, "same")
    old = model.model_construct(**values)
    new = model.model_construct(**{**values, field: "another"})
    assert list(changes("", old, new)) == [f"{field}: same becomes another"], name  # type: ignore[arg-type]


@pytest.mark.parametrize("field", sorted(GatewayConfig.model_fields))
def test_every_section_is_told(field: str) -> None:
    """A change of anything at the top of a configuration has a sentence."""
    old, new = config(OLD), config(NEW)
    before = old.model_copy(update={field: getattr(new, field)})
    assert bool(differences(old, before)) == (getattr(old, field) != getattr(new, field))


def test_the_values_of_header_fields_are_not_shown() -> None:
    """They may be credentials: of upstreams, of health checks, and of the clients of a route."""
    fields = """
routes:
  /a:
    upstream: u
    headers: {{ X-Api-Key: {0}-key }}
    request_headers: {{ set: {{ Authorization: "Bearer {0}-token" }}, add: {{ X-{0}: {0}-more }} }}
upstreams:
  u: {{ targets: "http://a:1", health: {{ path: /, headers: {{ Authorization: "{0}-login" }} }} }}
"""
    none = "routes: { /a: { upstream: u } }\nupstreams: { u: http://a:1 }\n"
    one, other, empty = (config(text) for text in (fields.format("a"), fields.format("b"), none))
    assert differences(one, other) == [
        (
            "Route /a: headers.x-api-key has changed; request_headers.set.Authorization has "
            "changed; request_headers.add.X-a is gone; request_headers.add.X-b is new."
        ),
        "Upstream u: health.headers.Authorization has changed.",
    ]
    for sentences in (differences(empty, one), differences(one, empty)):
        assert len(sentences) == 2
        assert not any(
            word in " ".join(sentences) for word in ("a-key", "a-token", "a-more", "a-login")
        )
