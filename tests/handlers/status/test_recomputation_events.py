"""Events of Dataflows that were computed anew: not one for each time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tidemark_operator.controller.reports.recomputation import FIELDS, Recomputation, recomputation, recomputing
from tidemark_operator.handlers.publish.recomputation_event import PAUSE_MS, REMEMBERED, RecomputationEvents
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_protocol.ids import ReplicaId

KEY = Key(DATAFLOWS, "ns", "daily")
R1, R2 = ReplicaId("r1"), ReplicaId("r2")
DONE = Recomputation(1_000, 90_000, 1_000_000, 40_000, 12_000, 11_500, 1)


class Notes:
    """In the place of `Events`."""

    def __init__(self) -> None:
        self.notes = list[str]()

    async def note(self, key: Key, uid: str, reason: str, note: str) -> None:
        assert (key, reason) == (KEY, "ComputedAnew")
        self.notes.append(note)


def test_an_event_says_when_why_and_how_long() -> None:
    notes = Notes()
    asyncio.run(RecomputationEvents(notes).tell(KEY, "u", R1, DONE, 5_000))  # type: ignore[arg-type]
    assert notes.notes == [
        "replica r1: computed anew at 1970-01-01T00:00:01.000Z in 11.5 s: a step over about 90,000 updates was "
        "estimated at 40.0 s, a hydration of about 1,000,000 rows at 12.0 s"
    ]


def test_a_dataflow_that_is_computed_anew_at_each_tick_has_an_event_each_ten_minutes() -> None:
    """For each replica. The same recomputation is told once, however often the Dataflow is reconciled."""

    async def run() -> list[str]:
        notes = Notes()
        events = RecomputationEvents(notes)  # type: ignore[arg-type]
        for second in range(PAUSE_MS // 500):
            await events.tell(KEY, "u", R1, replace(DONE, time=1_000 * second), 1_000 * second)
            await events.tell(KEY, "u", R2, DONE, 1_000 * second)
        return notes.notes

    told = asyncio.run(run())
    assert len([note for note in told if note.startswith("replica r1")]) == 2
    assert len([note for note in told if note.startswith("replica r2")]) == 1


def test_what_was_told_is_bounded() -> None:
    async def run() -> RecomputationEvents:
        events = RecomputationEvents(Notes())  # type: ignore[arg-type]
        for number in range(2 * REMEMBERED):
            await events.tell(KEY, f"u{number}", R1, DONE, 0)
        return events

    assert len(asyncio.run(run())._told) == REMEMBERED


def test_another_format_shows_nothing() -> None:
    fields = dict.fromkeys(FIELDS, "1")
    assert recomputation(fields) == Recomputation(*(1,) * 7)
    assert recomputation({}) is None
    assert recomputation(fields | {"rows": "many"}) is None
    del fields["time"]
    assert recomputation(fields) is None


def test_a_recomputation_that_runs_is_told_until_it_has_ended() -> None:
    begun = dict(zip(FIELDS, ("1000", "90000", "1000000", "40000", "12000"), strict=False))
    text = (
        "computes it anew at 1970-01-01T00:00:01.000Z: a step over about 90,000 updates was estimated at 40.0 s, a "
        "hydration of about 1,000,000 rows at 12.0 s"
    )
    assert recomputing(begun, None) == text
    assert recomputing(begun, replace(DONE, time=999)) == text
    assert recomputing(begun, DONE) == ""
    assert recomputing({}, None) == ""
    assert recomputing(begun | {"rows": "many"}, None) == ""
