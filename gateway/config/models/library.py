"""The configuration of a limiter that is used without the gateway.

It is a gateway's, so that an application and the gateway before it may read the same file;
but nothing has to be forwarded anywhere, and there is no point in having no policy.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gateway.config.models.gateway import GatewayConfig, PolicyConfig, RouteConfig


class LimiterConfig(GatewayConfig):
    """What a limiter takes from it: policies, defaults, store, domain and who is trusted."""

    needs_work: ClassVar[bool] = False

    policies: dict[str, PolicyConfig] = Field(min_length=1, description="Policies by name.")
    routes: tuple[RouteConfig, ...] = Field((), description="Of the gateway; may be left out.")
