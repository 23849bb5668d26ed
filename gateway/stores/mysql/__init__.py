"""Counts in MySQL or MariaDB."""
