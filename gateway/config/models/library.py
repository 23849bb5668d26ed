"""The configuration of a limiter without a gateway.

It is the configuration of a gateway, so that an application and the gateway before it can read the
same file. Routes are optional, but at least one policy is required.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gateway.config.models.gateway import GatewayConfig, PolicyConfig, RouteConfig


class LimiterConfig(GatewayConfig):
    """The keys that a limiter uses: policies, defaults, store, domain and trusted proxies."""

    needs_work: ClassVar[bool] = False

    policies: dict[str, PolicyConfig] = Field(min_length=1, description="Policies by name.")
    routes: tuple[RouteConfig, ...] = Field((), description="Of the gateway; ignored here.")
