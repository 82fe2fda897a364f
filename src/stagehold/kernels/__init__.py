"""Moving and hashing bytes: checksums, gather and scatter, copy lanes.

Importing this package imports nothing else: torch is loaded by the modules that need it, CUDA by none of them
before a CUDA device is asked for.
"""
