"""Filled by its wing."""
