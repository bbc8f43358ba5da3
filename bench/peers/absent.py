"""A peer that this machine cannot run: its figures are null, and the reason is in the context."""

from __future__ import annotations


class PeerAbsent(Exception):
    """Why, and what would install it."""
