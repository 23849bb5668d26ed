"""Changes to messages, compiled once: no I/O, bytes in and bytes out."""
