"""The side of the clients: connections, requests, deadlines, listeners."""
