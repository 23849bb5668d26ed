"""The data path: limits are applied to a request, it is forwarded, and its response returns.

`client` and `upstream` are the two sides and know nothing of each other; both use `http1`. Above
them, `server` owns the client connections, `driver` serves their requests, `gate` decides about
them (`request`, `routes`, `ruling`), and `exchange` is the state machine of a request and response
(`step`, `attempts`). `request_head` and `upload` write to the upstream, `response` and `tunnel` to
the client. `docs/architecture.md` follows a request through these files.
"""
