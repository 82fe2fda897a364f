"""The named errors of the cache wing. This module owns names and no behaviour.

Two families: a refusal (`CacheRefused`) says that a call was wrong and changed nothing; `InvariantBroken`
says that the books themselves are wrong, and nothing may go on from there.
"""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """What cannot happen has happened: the message names the place and both sides of the comparison."""


class CacheRefused(ValueError):
    """Base of all refusals of tree, pools and keys; the refused call changed nothing."""


class SpanRefused(CacheRefused):
    """A span that does not fit the chain or the live prefix."""


class ReceiptRefused(CacheRefused):
    """A receipt that was given back before, belongs to another kind of hold, or was never given out."""


class DeadReceipt(ReceiptRefused):
    """A receipt whose window was attached anew since: what it counted is no longer there."""


class AttachRefused(CacheRefused):
    """Slots that do not fill the missing part of a component: wrong size, over a live part, or incomplete."""


class SlotRefused(CacheRefused):
    """A slot freed twice, out of range, or named by a handle of an earlier generation."""


class FlushRefused(CacheRefused):
    """A flush while something is held."""


class ClaimRefused(CacheRefused):
    """A load over pages that another load in flight is bringing."""
