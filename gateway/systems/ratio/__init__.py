"""ratio: its clients are served, its servers are a store."""
