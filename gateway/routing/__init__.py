"""Which route a request takes, and which requests are counted together.

Pure: compiled once when the configuration is loaded, run for each request; no clock, no
network, no log. Read in this order:

- `path`: how a request path is interpreted, and which paths are refused.
- `host`: how a host name is interpreted.
- `pattern`: what a route requires of a request, and which of two routes is more specific.
- `path_index`: finds the rules that match a path, however many there are.
- `table`: all routes together.
- `sender`: what a route requires of the client, its cookies and its certificate.
- `conditions`: whether a request meets such requirements, and others.
- `client_address`: the client's address behind trusted proxies.
- `keys`: the identity under which a limit counts a request.
"""
