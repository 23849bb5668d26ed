"""Throttr, versions 2 and 5: a listener for its clients, and a store on its servers."""
