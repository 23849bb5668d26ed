"""Which route a request takes, and whose requests are counted together.

Pure: compiled once when the configuration is loaded, run for each request; no clock, no
network, no log. Read in this order:

- `path`: the one way a request path is read, and which paths are refused.
- `host`: the one way a host name is read.
- `pattern`: what a route asks of a request, and which of two routes is the more specific.
- `path_index`: from a path to the rules that fit it, whatever their number.
- `table`: all routes together.
- `client_address`: who is asking, behind trusted proxies.
- `keys`: from a request to the identity that a limit is counted for.
"""
