"""Signed tokens of clients (JSON Web Tokens): keys, signatures, claims."""
