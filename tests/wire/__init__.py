"""What goes over the wire, byte by byte, through one gateway that is a process of its own."""
