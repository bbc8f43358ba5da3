"""A revision beside the one that it is to succeed: since when, and for how long, it is level."""

from __future__ import annotations

from dataclasses import replace

from tests.controller.harness import LAG, R1, TERM, InstanceHarness, at
from tests.protocol.samples import dataflow
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.succession import LATELY_MS, Succession

SUCCESSOR = "ns/d/2"


class Beside(InstanceHarness):
    """An index, and the one that is to take its place, on a replica."""

    def __init__(self) -> None:
        super().__init__()
        serves, coming = (replace(dataflow(name, 300), sink_exports=()) for name in ("d", "e"))
        self.old, self.new = serves.export_ids[0], coming.export_ids[0]
        self.instance.create(Dataflow("ns/d", serves, LAG), TERM)
        beside = Succession({self.new: self.old})
        self.instance.create(Dataflow(SUCCESSOR, coming, LAG, beside, stays=True), TERM)
        self.connect(R1)

    @property
    def level_ms(self) -> int | None:
        coming = self.instance.dataflows.get(SUCCESSOR)
        assert coming is not None
        return coming.level_ms


def test_a_revision_without_updates_stays_level() -> None:
    """Nothing is reported where no input moves (a source is suspended). Whoever looks late, as the API server was
    away, finds it as far as what serves all the same."""
    harness = Beside()
    harness.report(R1, at(400), harness.old)
    harness.report(R1, at(400), harness.new)
    assert harness.level_ms == harness.now

    harness.now += 10 * LATELY_MS
    harness.maintain()
    assert harness.level_ms == harness.now


def test_looking_does_not_make_a_lagging_revision_level() -> None:
    harness = Beside()
    harness.report(R1, at(400), harness.old)
    harness.report(R1, at(390), harness.new)
    harness.maintain()
    assert harness.level_ms is None
