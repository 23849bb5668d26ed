"""Upstreams that speak HTTP/2: connections with many streams, one for each exchange."""
