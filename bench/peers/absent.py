"""A peer that does not run: its figures are null, and the reason is in the context."""

from __future__ import annotations

PEERS = ("pathway", "dd")


class PeerAbsent(Exception):
    """The peer is not installed. The text says why, and what would install it."""


def check_wanted(peer: str, wanted: str) -> None:
    """Raises PeerAbsent for one that the command line leaves out."""
    if peer not in wanted.split(","):
        raise PeerAbsent("left out by --peers")
