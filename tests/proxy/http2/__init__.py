"""HTTP/2 between bytes and events."""
