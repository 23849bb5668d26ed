"""Checked, frozen models of everything that can be configured."""
