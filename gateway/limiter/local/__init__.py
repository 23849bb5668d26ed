"""Decides without asking the store each time: from leases, and from its last answers.

The decision on a request is in `gateway.limiter.outcome`. `leases` and `eventual` keep the state of
one gateway and do no I/O; `local_decider` connects them to the decider's store, limit by limit.
"""
