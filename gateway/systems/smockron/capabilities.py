"""Policies that gatekeepers and masters of Smockron support.

A gatekeeper follows the pace that the master sets, for one key of a policy. A master supports only
pacing, and keeps its histories in memory or in Redis. A gateway that is also a gatekeeper has no
other store, so its master uses memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.capabilities import CapabilityChecks
from gateway.config.models.frontends import FrontendConfig
from gateway.config.models.gateway import GatewayConfig, policies_of_requests
from gateway.config.models.policies import PolicyConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.store_url import capabilities_of, parse_store_url
from gateway.limits.reported import ALGORITHMS, FURTHEST_US
from gateway.stores.urls import StoreUrl
from gateway.systems.smockron.codec import MAX_NAME

_KIND: Final = "smockron"


def of_masters_only(config: GatewayConfig) -> set[str]:
    """Return the policies of domains that apply to no request of this gateway."""
    own = {name for listener in _masters(config) for name in listener.policies}
    others = set(policies_of_requests(config))
    for listener in config.listeners:
        if listener.smockron is None:
            others.update(listener.policies)
    return own - others


def _unsupported(_: StoreUrl, policy: PolicyConfig) -> Iterator[Finding]:
    """Yield what a gatekeeper does not support in a policy; paths begin below the policy."""
    if policy.headers != "none":
        message = "a gatekeeper does not know how much is left"
        yield Finding(("headers",), message, "leave headers out")
    if policy.on_store_error == "closed":
        message = "a gatekeeper admits all requests while its master is unavailable"
        yield Finding(("on_store_error",), message, "leave it out, or use another kind of store")
    if policy.queue is not None and policy.queue.max_wait > FURTHEST_US:
        message = "a master ignores requests that wait longer than a minute"
        yield Finding(("queue", "max_wait"), message, "at most 1m")
    first = policy.limits[0].per
    for index, line in enumerate(policy.limits):
        if line.limit.algorithm not in ALGORITHMS:
            message = f"a gatekeeper only supports a pace: {line.text}"
            hint = f"use algorithm: {' or '.join(ALGORITHMS)}, or another kind of store"
            yield Finding(("limits", index), message, hint)
        elif line.per != first:
            message = "a domain counts all requests by one key, and this key differs"
            yield Finding(("limits", index), message, "use another policy, which is another domain")


def _unfit(config: GatewayConfig) -> Iterator[Finding]:
    yield from _unfit_for_gatekeepers(config)
    yield from _unfit_for_masters(config)


def _unfit_for_gatekeepers(config: GatewayConfig) -> Iterator[Finding]:
    """Yield names that cannot be domains, several policies of one, counts that cannot move."""
    url = parse_store_url(config.store.url)
    migrate = config.store.migrate
    if migrate is not None and _KIND in {url.kind, parse_store_url(migrate.to).kind}:
        message = "a gatekeeper has no counts to move"
        yield Finding(("store", "migrate", "to"), message, "change the store without migrate")
    if url.kind != _KIND:
        return
    elsewhere = of_masters_only(config)
    names = [name for name in config.policies if name not in elsewhere]
    if "domain" in url.options:
        for name in names[1:]:
            message = f"the domain {url.options['domain']} counts the requests of {names[0]}"
            hint = "leave ?domain= out: then each policy is a domain of its name"
            yield Finding(("policies", name, KEY), message, hint)
    for name in names:
        if "domain" not in url.options and len(name) > MAX_NAME:
            message = f"the name of a domain has at most {MAX_NAME} bytes"
            yield Finding(("policies", name, KEY), message, "a shorter name")


def _unfit_for_masters(config: GatewayConfig) -> Iterator[Finding]:
    """Yield limits that cannot count reported requests, and stores that cannot keep them."""
    keeps_reports = capabilities_of(config.store.url).keeps_reports
    for index, listener in enumerate(config.listeners):
        if listener.smockron is None:
            continue
        if not keeps_reports:
            kind = parse_store_url(config.store.url).kind
            message = f"{kind} cannot keep the reports for a Smockron master"
            hint = "use memory:// for one master, redis:// for several"
            yield Finding(("listeners", index, "smockron", KEY), message, hint)
        for name in listener.policies:
            policy = config.policies.get(name)
            for number, line in enumerate(policy.limits if policy is not None else ()):
                if line.limit.algorithm in ALGORITHMS:
                    continue
                message = f"{line.limit.algorithm} cannot count requests that gatekeepers report"
                hint = f"use algorithm: {' or '.join(ALGORITHMS)}"
                yield Finding(("policies", name, "limits", number), f"{message}: {line.text}", hint)


def _masters(config: GatewayConfig) -> list[FrontendConfig]:
    return [listener for listener in config.listeners if listener.smockron is not None]


CHECKS: Final = CapabilityChecks(_unfit, _unsupported)
