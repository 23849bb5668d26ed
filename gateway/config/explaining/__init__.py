"""Describes a configuration in sentences, and makes its JSON Schema."""
