"""The side of the upstreams: connections, answers, health, balancing."""
