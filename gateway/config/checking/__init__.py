"""What is wrong with a configuration, and what would do."""
