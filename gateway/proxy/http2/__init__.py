"""HTTP/2 as both sides of the proxy read it: framing by a library, and header lines (no I/O)."""
