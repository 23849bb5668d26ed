"""The data path: a request is held to its limits and forwarded, and its response returns.

`client` and `upstream` are the two sides and know nothing of each other; both read `http1`. On
top, `server` has the clients, `driver` serves their requests, `gate` decides about them (`request`,
`routes`, `ruling`), and `exchange` is the state machine of a request and its response (`step`,
`attempts`). `request_head` and `upload` write to the upstream, `response` and `tunnel` to the
client. `docs/architecture.md` follows a request through these files.
"""
