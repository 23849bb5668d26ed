"""Which target of an upstream a request goes to, and which targets are left out: no I/O.

A `Candidate` is a target as balancers see it. The four balancers choose one of several
(`round_robin`, `least_requests`, `random_two`, `consistent_hash`); `target_health` decides which
may be chosen, based on checks and requests (`checks`, `ejection`), and with which weight
(`slow_start`); `breaker` decides whether the upstream may be used at all. Time is an argument, in
whole microseconds of a monotonic clock, and so is randomness.
"""

from __future__ import annotations

from gateway.proxy.upstream.balancing.breaker import NO_TICKET, BreakerNumbers, WindowBreaker
from gateway.proxy.upstream.balancing.candidate import SCALE, Balancer, Candidate
from gateway.proxy.upstream.balancing.checks import CheckCounter
from gateway.proxy.upstream.balancing.consistent_hash import ConsistentHash
from gateway.proxy.upstream.balancing.ejection import Ejection
from gateway.proxy.upstream.balancing.least_requests import LeastRequests
from gateway.proxy.upstream.balancing.random_two import RandomTwo
from gateway.proxy.upstream.balancing.round_robin import RoundRobin
from gateway.proxy.upstream.balancing.target_health import Change, EjectionRecord, TargetHealth

__all__ = [
    "NO_TICKET",
    "SCALE",
    "Balancer",
    "BreakerNumbers",
    "Candidate",
    "Change",
    "CheckCounter",
    "ConsistentHash",
    "Ejection",
    "EjectionRecord",
    "LeastRequests",
    "RandomTwo",
    "RoundRobin",
    "TargetHealth",
    "WindowBreaker",
]
