"""What can be seen of a running gateway: logs and metrics."""
