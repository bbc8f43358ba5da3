"""What a dataflow has cost and keeps is told now and then, and only what is new."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.responses import Response, Status
from tidemark_replica.arrangement.manifest import Manifest
from tidemark_replica.working import TELL_SECONDS, Working, sizes


def kept(*rows: int) -> list[Manifest]:
    """One arrangement with a batch of so many rows each."""
    batches = [SimpleNamespace(rows=r, bytes=10 * r) for r in rows]
    return [cast(Manifest, SimpleNamespace(batches=batches))]


def test_sizes_are_of_all_arrangements_together() -> None:
    """Whoever wants them apart looks at the files."""
    assert sizes([*kept(1, 2), *kept(4)]) == {"arrangements": 2, "records": 7, "batches": 3, "bytes": 70}


def test_steps_are_told_together_after_a_while_and_again_to_a_new_client() -> None:
    """Nothing before the first step; nothing twice."""
    said: list[Response] = []
    now = [100.0]
    working = Working(GlobalId("d/i"), said.append, lambda: now[0])
    working.tell(lambda: kept(5))
    assert said == []

    working.step(0.25)
    working.tell(lambda: kept(5))
    first = {s.kind: s.fields for s in cast(list[Status], said)}
    assert first["steps"] == {"steps": "1", "elapsed_ms": "250", "max_ms": "250"}
    assert first["arrangements"]["records"] == "5"

    working.step(0.5)
    working.tell(lambda: kept(6))
    assert len(said) == 2
    now[0] += TELL_SECONDS
    working.tell(lambda: kept(5))
    last: Any = said[-1]
    assert (len(said), last.kind, last.fields["elapsed_ms"]) == (3, "steps", "750")
    working.retell()
    working.tell(lambda: kept(5))
    assert len(said) == 5
