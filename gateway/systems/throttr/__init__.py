"""Throttr, versions 2 and 5: its clients are served, its servers are a store."""
