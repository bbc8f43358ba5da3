"""Controller and replicas together, where images of replicas come and go that do not understand every plan.

Older images refuse commands about such a plan (`SimReplica.take`), and that is a violation. A replica that understands
all takes up whatever others left undone: nothing was compacted that it has to read.

`TIDEMARK_MODEL_PROGRAMS=20000 pytest tests/model` runs more of them, `TIDEMARK_MODEL_SEED=100` others.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from tests.model.replica import SimReplica
from tests.model.simulation import REPLICAS, TABLES
from tests.model.test_model import PROGRAMS, SEED, Model, _indexes, parts, replicas, tables
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES

PARTS, QUICK_PARTS = 4, 2
KINDS = ("refreshed view", "index and refreshed view")
OLDER: tuple[str, ...] = ()


class Images(Model):
    """All else can happen as well."""

    @precondition(lambda self: len(self.simulation.stored) < 6)
    @rule(kind=st.sampled_from(KINDS), table=tables)
    def create_refreshed(self, kind: str, table: str) -> None:
        self.simulation.create(kind, table, None)

    @precondition(lambda self: any(_indexes(self.simulation)) and len(self.simulation.stored) < 6)
    @rule(data=st.data(), kind=st.sampled_from(KINDS))
    def create_refreshed_over_an_index(self, data: st.DataObject, kind: str) -> None:
        self.simulation.create(kind, TABLES[0], data.draw(st.sampled_from(_indexes(self.simulation))))

    @rule(name=replicas, understands=st.sampled_from([OLDER, SUPPORTED_FEATURES]), at_once=st.booleans())
    def another_image(self, name: ReplicaId, understands: tuple[str, ...], at_once: bool) -> None:
        """Its process is another one, with nothing; up to date, or rolled back."""
        self.simulation.cut(name)
        self.simulation.replicas[name] = SimReplica(self.simulation.shards, understands)
        if at_once:
            self.simulation.connect(name)

    @rule(understands=st.sampled_from([OLDER, SUPPORTED_FEATURES]))
    def all_other_images(self, understands: tuple[str, ...]) -> None:
        for name in REPLICAS:
            self.another_image(name, understands, at_once=True)

    @invariant()
    def who_cannot_be_told_is_told_nothing(self) -> None:
        """It is not hydrated there, reads nothing, and computes nothing; all else of it goes on."""
        for collection in self.simulation._collections():
            if collection.owner not in self.simulation.stored:
                continue
            for name in self.simulation.connections:
                on, reported = collection.replicas[name], self.simulation.questions.is_told(name, collection.owner)
                assert reported is not bool(on.missing_features), f"{name} and {collection.id}"
                assert reported or (on.excluded and not on.hydrated and on.is_gone), "it has nothing of it"
            reported = any(
                self.simulation.questions.is_told(name, collection.owner) for name in self.simulation.connections
            )
            assert reported or not collection.hydrated, f"nobody computes {collection.id}"

    def teardown(self) -> None:
        """First what is there goes on as far as it can, then the last image is up to date, and all is done."""
        for name in REPLICAS:
            self.simulation.connect(name)
        for _ in range(12):  # suspects hydrate one by one
            self.simulation.exchange(REPLICAS)
        for name, replica in self.simulation.replicas.items():
            processed = {d.description.name: d.processed.encode() for d in replica.dataflows}
            mine = {
                o: self.simulation.complete(o)
                for o in self.simulation.stored
                if self.simulation.questions.is_told(name, o)
            }
            assert {o: processed.get(o) for o in mine} == mine, f"{name} has done all that it understands"
        for name in REPLICAS:
            if self.simulation.replicas[name].understands != SUPPORTED_FEATURES:
                self.another_image(name, SUPPORTED_FEATURES, at_once=True)
        super().teardown()


@pytest.mark.parametrize("part", parts(PARTS, QUICK_PARTS))
def test_random_programs_with_older_images_keep_every_promise(part: int) -> None:
    """Each part from a seed of its own, so that several run beside each other."""
    run_state_machine_as_test(
        seed(SEED + part)(type(f"Images{part}", (Images,), {})),
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
