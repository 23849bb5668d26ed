"""Listeners that speak another limiter's protocol, for its clients: each asks the decider."""
