"""What of a replica's description of itself can be.

Reports are judged where they are taken: shards, collection, subscribes.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_operator.controller.read_policy import is_vouched
from tidemark_protocol.responses import Description


def credible(description: Description, now_ms: int) -> Description:
    """Without exports that begin ahead of the clock: what goes on there is to go on from where it can be."""
    return replace(description, collections=tuple(c for c in description.collections if is_vouched(c.since, now_ms)))
