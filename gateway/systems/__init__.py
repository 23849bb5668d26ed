"""Other rate limiting systems, one folder each: protocol, listener, store and configuration."""
