"""The limiter without the gateway: policies, a key, and a decision.

Read `limiter` first. `policies` is a policy in Python, `decision` the result for a request,
`questions` turns a key into a question to the store, `asking` sends it and waits, `lines` queues
callers without turns from the store, `slots` has the slots of requests in flight, and `decorator`
is the decorator. Code for HTTP is in `gateway.integrations`.
"""

from __future__ import annotations

from gateway.library.decision import Decision, LimitExceeded
from gateway.library.limiter import Limiter
from gateway.library.policies import Policy

__all__ = ["Decision", "LimitExceeded", "Limiter", "Policy"]
