"""The limiter beside other libraries: each in a process of its own, asked as its users ask it.

Read in this order: `job` (what a process is told), `adapters` (one library each), `drive` (how
it is kept busy and timed), `worker` (the process), `process` (its other end), `contestants` (who
has which algorithm), `match` (bringing them up). What is measured is in `bench.scenarios`.
"""
