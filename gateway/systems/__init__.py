"""Other rate limiting systems, a folder each: protocol, listener, store and configuration."""
