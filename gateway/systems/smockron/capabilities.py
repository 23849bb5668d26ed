"""What a gatekeeper of Smockron can keep: a pace that the master gives, for one key of a policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.config.models.gateway import GatewayConfig
from gateway.config.models.policies import PolicyConfig
from gateway.config.values.findings import KEY, Finding
from gateway.config.values.store_url import parse_store_url
from gateway.limits.reported import ALGORITHMS, FURTHEST_US
from gateway.stores.urls import StoreUrl
from gateway.systems.smockron.codec import MAX_NAME
from gateway.systems.smockron.masters import of_masters_only

_KIND: Final = "smockron"


def misfits_of_gatekeepers(_: StoreUrl, policy: PolicyConfig) -> Iterator[Finding]:
    """What of a policy a gatekeeper cannot keep; paths begin below the policy."""
    if policy.consistency != "eventual":
        message = "a gatekeeper lets pass first and reports afterwards, and this policy is "
        message += policy.consistency
        yield Finding(("consistency",), message, "consistency: eventual, or a store of another kind")
    if policy.headers != "none":
        message = "a gatekeeper does not know how much is left"
        yield Finding(("headers",), message, "leave headers out")
    if policy.on_store_error == "closed":
        message = "a gatekeeper lets everything pass while its master is away"
        yield Finding(("on_store_error",), message, "leave it out, or a store of another kind")
    if policy.queue is not None and policy.queue.max_wait > FURTHEST_US:
        message = "a master believes nobody who waits longer than a minute"
        yield Finding(("queue", "max_wait"), message, "at most 1m")
    first = policy.limits[0].per
    for index, line in enumerate(policy.limits):
        if line.limit.algorithm not in ALGORITHMS:
            message = f"a gatekeeper knows of a limit at which pace requests pass: {line.text}"
            hint = f"algorithm: {' or '.join(ALGORITHMS)}, or a store of another kind"
            yield Finding(("limits", index), message, hint)
        elif line.per != first:
            message = "a domain counts all requests by one key, and this is another"
            yield Finding(("limits", index), message, "a policy, and so a domain, of its own")


def unfit_for_gatekeepers(config: GatewayConfig) -> Iterator[Finding]:
    """Names that cannot be domains, several policies of one, counts that cannot move."""
    url = parse_store_url(config.store.url)
    migrate = config.store.migrate
    if migrate is not None and _KIND in {url.kind, parse_store_url(migrate.to).kind}:
        message = "a gatekeeper keeps no counts that could move"
        yield Finding(("store", "migrate", "to"), message, "change the store at once")
    if url.kind != _KIND:
        return
    elsewhere = of_masters_only(config)
    names = [name for name in config.policies if name not in elsewhere]
    if "domain" in url.options:
        for name in names[1:]:
            message = f"the domain {url.options['domain']} counts the requests of {names[0]}"
            hint = "leave ?domain= out, and each policy is a domain of its name"
            yield Finding(("policies", name, KEY), message, hint)
    for name in names:
        if "domain" not in url.options and len(name) > MAX_NAME:
            message = f"the name of a domain has at most {MAX_NAME} bytes"
            yield Finding(("policies", name, KEY), message, "a shorter name")


def queues_without_turns(config: GatewayConfig) -> Iterator[Finding]:
    """Queues of eventual policies in stores that are not asked before requests go on."""
    if parse_store_url(config.store.url).kind == _KIND:
        return
    for name, policy in config.policies.items():
        if policy.consistency == "eventual" and policy.queue is not None:
            message = "turns are given by the store, which an eventual policy does not ask"
            yield Finding(("policies", name, "queue", KEY), message, "leave the queue out")
