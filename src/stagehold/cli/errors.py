"""The one exception by which a verb says that its input cannot be used."""

from __future__ import annotations


class BadInput(Exception):
    """What is wrong and what was expected, in one line."""
