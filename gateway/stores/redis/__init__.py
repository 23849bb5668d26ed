"""Counts in Redis or Valkey: one server, behind Sentinel, or a Cluster."""
