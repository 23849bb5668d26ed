"""Smockron: masters for its gatekeepers, and a gatekeeper for its masters."""
