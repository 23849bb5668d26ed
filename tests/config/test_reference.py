"""The reference in docs/configuration.md names every field, with its default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from gateway.config.explaining.schema import written_default
from gateway.config.models import gateway as models
from gateway.config.values.base import Model

PAGE: Final = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()

SECTIONS: Final[dict[str, type[Model]]] = {
    "The whole file": models.GatewayConfig,
    "Listeners": models.ListenerConfig,
    "Other systems": models.FrontendConfig,
    "Envoy": models.EnvoyRlsConfig,
    "Rules of Envoy": models.EnvoyRule,
    "Header names of Envoy": models.EnvoyHeaders,
    "ratio": models.RatioConfig,
    "Rules of ratio": models.RatioRule,
    "Smockron": models.SmockronConfig,
    "Domains of Smockron": models.SmockronDomain,
    "Throttr": models.ThrottrConfig,
    "TLS": models.ListenerTls,
    "Certificates": models.CertificateConfig,
    "Client headers": models.ClientHeaders,
    "Store": models.StoreConfig,
    "Migrate": models.MigrateConfig,
    "Upstreams": models.UpstreamConfig,
    "Timeouts": models.Timeouts,
    "Retry": models.RetryConfig,
    "TLS to upstreams": models.UpstreamTlsConfig,
    "Health": models.HealthConfig,
    "Eject": models.EjectConfig,
    "Breaker": models.BreakerConfig,
    "Policies": models.PolicyConfig,
    "ThrottleX": models.ThrottlexConfig,
    "Tiers": models.TierConfig,
    "Exceptions": models.ConditionConfig,
    "Lists": models.ListConfig,
    "Queue": models.QueueConfig,
    "Leased": models.LeasedConfig,
    "Eventual": models.EventualConfig,
    "on_limit": models.OnLimit,
    "Tokens": models.JwtConfig,
    "Countries and networks": models.GeoipConfig,
    "Routes": models.RouteConfig,
    "Redirect": models.RedirectConfig,
    "Respond": models.RespondConfig,
    "Error pages": models.ErrorPage,
    "Header edits": models.FieldEdits,
    "CORS": models.CorsConfig,
    "Defaults": models.Defaults,
    "Server": models.ServerConfig,
    "Admin": models.AdminConfig,
    "Ready": models.ReadyConfig,
    "Log": models.LogConfig,
}


def _rows(heading: str) -> dict[str, str]:
    """The fields of the table of fields under a heading, and their defaults."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]
    table = section.partition("| field | type | default | |\n")[2].partition("\n\n")[0]
    cells = [line.split(" | ") for line in table.splitlines()[1:]]
    return {row[0].strip("| `"): row[2] for row in cells}


def _default(model: type[Model], name: str) -> str:
    if model.model_fields[name].is_required():
        return "required"
    default = written_default(model, name)
    if default is None:
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_reference_is_complete(heading: str) -> None:
    """Each field is there, in the order of the model, with the default of the model."""
    model = SECTIONS[heading]

    assert _rows(heading) == {name: _default(model, name) for name in model.model_fields}
    assert list(_rows(heading)) == list(model.model_fields)


def test_every_model_has_its_section() -> None:
    """A new model needs a section; targets are written as they are read, not as they are kept."""
    names = {name for name in models.__all__ if name not in {"Address", "LimitLine", "Target"}}

    assert {model.__name__ for model in SECTIONS.values()} == names
