"""Deciding without asking the store each time: leases, and what was last heard.

`outcome` is what a request is told. `leases` and `hearsay` keep the state of one gateway and
do no I/O; `near` puts them between the decider and its store, limit by limit.
"""
