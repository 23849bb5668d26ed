"""Sockets: listening, TLS, and queries to the kernel."""
