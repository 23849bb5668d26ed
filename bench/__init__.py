"""Sluice beside its rivals, on this machine, in one run: `python -m bench`.

Every figure comes from real processes talking over loopback. The proxy under test has one
CPU to itself (and one worker or thread); the load generator, the upstream and Redis share
another. Rounds are interleaved, so that noise of the machine hits all contestants alike.

Read in this order: `machine` (CPUs), `proc` and `servers` (processes), `stage` (what stands
around a proxy), `rivals` (the proxies), `load`, `pace` and `bulk` (traffic), `check` (a proxy
that does not do the job is not measured), `scenarios` (one module per figure), `report`.
"""
