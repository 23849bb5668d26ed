"""Wire protocols of other systems, without I/O: bytes to requests, and answers to bytes."""
