"""HTTP messages made by the gateway, and changes to messages that pass through it: no I/O."""
