"""Reads files into nodes with positions."""
