"""What of a replica's description of itself can be.

    view  since: a minute ahead of this clock  ─►  since: 30 s ahead, as far as the clock vouches for it

An export that began to be readable ahead of the clock is there all the same: whoever leads now may have a clock that is
behind that of the one before. Left out, it would wait for its inputs to be credible, and the replica drop it meanwhile.

Reports are judged where they are taken: shards, collection, subscribes.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_operator.controller.frontiers.read_policy import bounded
from tidemark_protocol.messages.responses import Description


def credible(description: Description, now_ms: int) -> Description:
    """With exports that are readable from where the clock vouches for it on."""
    collections = tuple(replace(c, since=bounded(c.since, now_ms)) for c in description.collections)
    return replace(description, collections=collections)
