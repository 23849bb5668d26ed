"""The client side: connections, requests, deadlines, listeners."""
