"""ratio: a listener for its clients, and a store on its servers."""
