"""What a dataflow has cost and what it keeps, told now and then: introspection that nothing depends on.

    Status steps           how many there were, how long they took in all, the longest
    Status arrangements    how many, and their rows, batches and bytes

Told of a dataflow's first export, at most every TELL_SECONDS, and only what has changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.responses import Response, Status
from tidemark_replica.arrangement.manifest import Manifest

TELL_SECONDS = 10.0


class Working:
    """On the worker's thread."""

    def __init__(
        self, id: GlobalId, respond: Callable[[Response], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._id, self._respond, self._clock = id, respond, clock
        self._steps, self._seconds, self._longest = 0, 0.0, 0.0
        self._told_at = -TELL_SECONDS
        self._told: dict[str, dict[str, str]] = {}

    def step(self, seconds: float) -> None:
        """One was committed, that long after it was found to be possible."""
        self._steps += 1
        self._seconds += seconds
        self._longest = max(self._longest, seconds)

    def tell(self, keeps: Callable[[], Iterable[Manifest]]) -> None:
        """If it is time to."""
        now = self._clock()
        if self._steps and now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            self._say("steps", {"steps": self._steps, "elapsed_ms": self._seconds * 1e3, "max_ms": self._longest * 1e3})
            self._say("arrangements", sizes(keeps()))

    def retell(self) -> None:
        """The client is a new one."""
        self._told, self._told_at = {}, -TELL_SECONDS

    def _say(self, kind: str, numbers: dict[str, float]) -> None:
        fields = {name: str(int(number)) for name, number in numbers.items()}
        if self._told.get(kind) != fields:
            self._told[kind] = fields
            self._respond(Status(self._id, kind, fields))


def sizes(manifests: Iterable[Manifest]) -> dict[str, float]:
    """Of arrangements together."""
    kept = list(manifests)
    batches = [batch for manifest in kept for batch in manifest.batches]
    return {
        "arrangements": len(kept),
        "records": sum(batch.rows for batch in batches),
        "batches": len(batches),
        "bytes": sum(batch.bytes for batch in batches),
    }
