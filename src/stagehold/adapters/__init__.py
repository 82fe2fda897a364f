"""Connectors for engines that own their blocks. They use what any embedder can use."""
