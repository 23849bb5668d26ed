"""From files to nodes that know their place."""
