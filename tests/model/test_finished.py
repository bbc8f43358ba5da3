"""Controller and replicas together, where tables are finished: no replica is told of their dataflows any more.

    until in the data's times     the clock is long past it
    until an hour ahead           the dataflow goes on

A replica that begins at or after an end which its table has not reached is a violation (`Driver`), and so is one that
cannot read what it still has to compute.

`TIDEMARK_MODEL_PROGRAMS=20000 pytest tests/model` runs more of them, `TIDEMARK_MODEL_SEED=100` others.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from tests.model.simulation import REPLICAS, TABLES
from tests.model.test_model import PROGRAMS, SEED, Model, _indexes, parts, replicas, tables
from tidemark_operator.controller.replicas.excluded_dataflows import tables_of
from tidemark_protocol.frontier import EMPTY_SENTINEL, Frontier
from tidemark_protocol.ids import ReplicaId, ShardId, Time
from tidemark_protocol.messages.responses import Description

PARTS, QUICK_PARTS = 4, 2
NEVER_MS = 3_600_000
ends = st.sampled_from([None, 0, 1, 40, 200])
"""The ends, so far beyond the present; None: never."""


class Ending(Model):
    """All else can happen as well."""

    @precondition(lambda self: len(self.simulation.stored) < 6)
    @rule(table=tables, after=ends)
    def create_ending(self, table: ShardId, after: int | None) -> None:
        self.simulation.create("view", table, None, self._until(table, after))

    @precondition(lambda self: any(_indexes(self.simulation)) and len(self.simulation.stored) < 6)
    @rule(data=st.data(), after=ends)
    def create_ending_over_an_index(self, data: st.DataObject, after: int | None) -> None:
        reads = data.draw(st.sampled_from(_indexes(self.simulation)))
        self.simulation.create("view", TABLES[0], reads, self._until(TABLES[0], after))

    @rule(names=st.permutations(REPLICAS), by=st.sampled_from([0, 300]))
    def end_and_begin_anew(self, names: list[ReplicaId], by: int) -> None:
        """Much comes to its end; then one replica is killed, and another connected anew."""
        self.go_on(tuple(names[:2]), by)
        self.simulation.kill(names[0])
        for name in (names[0], names[1], names[2]):
            self.simulation.connect(name)

    @rule(name=replicas)
    def cannot_look(self, name: ReplicaId) -> None:
        """A replica's storage does not answer as it connects: whatever others say, it says nothing of any table."""

        def tell(true: Description) -> Description:
            none = Frontier.minimum()
            return replace(
                true, shards=tuple(replace(s, upper=none, since=none, error="no answer") for s in true.shards)
            )

        self.simulation.connect(name, tell)

    @invariant()
    def what_is_known_to_be_finished_is_finished(self) -> None:
        """A dataflow that is left out has nothing to compute, and its replica has nothing of it."""
        for collection in self.simulation._collections():
            stored = self.simulation.stored.get(collection.owner)
            if stored is None or not tables_of(stored.description):
                continue
            (table,) = tables_of(stored.description)
            is_finished = self.simulation.shards[table].upper == EMPTY_SENTINEL
            assert is_finished or collection.write is None or not collection.write.is_empty, "it goes on"
            for name, on in collection.replicas.items():
                assert not on.excluded or (is_finished and on.hydrated and on.is_gone), f"{name}: it goes on"

    def _until(self, table: ShardId, after: int | None) -> Time:
        upper = self.simulation.shards[table].upper
        return Time(self.simulation.now + NEVER_MS if after is None else upper + after)


@pytest.mark.parametrize("part", parts(PARTS, QUICK_PARTS))
def test_random_programs_with_finished_tables_keep_every_promise(part: int) -> None:
    """Each part from a seed of its own, so that several run beside each other."""
    run_state_machine_as_test(
        seed(SEED + part)(type(f"Ending{part}", (Ending,), {})),
        settings=settings(
            max_examples=-(-PROGRAMS // 5 // PARTS),
            stateful_step_count=40,
            report_multiple_bugs=False,
            phases=(Phase.generate,),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
