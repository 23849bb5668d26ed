"""The limiter without the gateway: policies, a key, and a decision.

Read `limiter` first. `policies` is how a policy is written in Python, `decision` what is said
of a request, `questions` how a key becomes a question to the store, `asking` how it is asked
and waited for, `lines` how callers wait whom the store gives no turns, `slots` what is held
while it lasts, `decorator` the decorator. What speaks HTTP is in
`gateway.integrations`.
"""

from __future__ import annotations

from gateway.library.decision import Decision, LimitExceeded
from gateway.library.limiter import Limiter
from gateway.library.policies import Policy

__all__ = ["Decision", "LimitExceeded", "Limiter", "Policy"]
