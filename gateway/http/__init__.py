"""HTTP messages of our own making, and changes to those of others: no I/O."""
