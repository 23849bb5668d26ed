"""What other systems say on the wire: bytes to values and back, without a socket or a clock."""
