"""Baselines as declared policies: the one engine with other rows or other decisions, and the rules that they break."""
