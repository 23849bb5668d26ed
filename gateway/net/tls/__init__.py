"""TLS of listeners and upstreams: certificates, their selection and renewal.

`certificate`, `names` and `peer` are pure: the content of a certificate, the one a client asked
for, and the identity of a client. `files` makes contexts from files; `server` and `client` hold
those in use; `renewal` checks whether files have changed.
"""
