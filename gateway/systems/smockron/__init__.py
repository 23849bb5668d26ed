"""Smockron: a master for its gatekeepers, and a gatekeeper for its masters."""
