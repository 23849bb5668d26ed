"""The upstream side: connections, answers, health, balancing."""
