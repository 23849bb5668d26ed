"""The proxies in the comparison, one module each: Sluice, and those it wants to be measured by.

All do the same job: forward over keep-alive connections, hold each client address to a limit,
write a line per request to a log file; each is configured as its own documentation advises.
Their configuration files are in `bench/templates`.
"""
