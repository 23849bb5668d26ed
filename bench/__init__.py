"""Sluice beside its rivals, on this machine, in one run: `python -m bench`.

Every figure comes from real processes talking over loopback. The proxy or library under test has
one CPU to itself (and one worker or thread); the load generator, the upstream and the stores share
another. Rounds are interleaved, so that noise of the machine hits all contestants alike.

Read in this order: `machine` (CPUs), `proc` and `servers` (processes), `stage` (what stands
around a proxy), `rivals` (the proxies), `load`, `pace` and `bulk` (traffic), `check` (a proxy
that does not do the job is not measured), `limiter` (other libraries), `scenarios` (one module
per figure), `report`.
"""
