"""TLS, of listeners and to upstreams: certificates, their choice and their renewal.

`certificate`, `names` and `peer` are pure: what a certificate says, which one a client asked for,
and who a client is. `files` makes contexts of files; `server` and `client` hold those that are in
use; `renewal` looks whether files have changed.
"""
