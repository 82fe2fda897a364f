"""Benches, one file per measured part. Each prints figures; none decides whether they are good enough."""
