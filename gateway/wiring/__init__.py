"""The one place where checked configuration becomes objects."""
