"""Sockets: listening, TLS, and what the kernel says of them."""
