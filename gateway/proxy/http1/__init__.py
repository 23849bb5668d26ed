"""HTTP/1 as both sides of the proxy read it: grammar and chunked bodies (pure)."""
