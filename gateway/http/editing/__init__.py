"""What may be changed of a message, compiled once: no I/O, bytes in and bytes out."""
