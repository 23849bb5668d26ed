"""The only place where a checked configuration becomes objects."""
