"""Row counts of what Dataflows export: from reports of replicas to the planner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.gateway.registries import add_dataflow, registry
from tests.handlers.revised_dataflows import mark
from tidemark_operator.catalogue.dataflow_state import DataflowState, PendingRevision, ReplacementId
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.catalogue.row_counts import counts_of, export_counts
from tidemark_operator.controller.frontiers.collection import Collection, ExportOnReplica
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId


class Reported:
    """Collections whose replicas have reported these rows, by compute id."""

    def __init__(self, **of: tuple[str, ...]) -> None:
        self.of = of

    def __call__(self, state: DataflowState, id: GlobalId) -> Collection | None:
        name = next((name for name in self.of if id.startswith(f"{name}/") or id == name), None)
        if name is None:
            return None
        replicas = {str(at): ExportOnReplica(Frontier.minimum()) for at in range(len(self.of[name]))}
        for on, rows in zip(replicas.values(), self.of[name], strict=True):
            on.statuses["rows"] = {"rows": rows}
        return cast(Any, type("C", (), {"replicas": replicas})())


@pytest.mark.parametrize(
    ("reports", "rows"),
    [
        (("4096",), 4096),
        (("4096", "8192"), 8192),  # a replica may have compacted more than another
        (("16",), 1024),
        (("0",), None),
        ((), None),
        (("many",), None),  # an image with another format
    ],
)
@pytest.mark.parametrize("name", ["totals", "view-totals"])
def test_must_rows_of_exports_reach_the_planner(name: str, reports: tuple[str, ...], rows: int | None) -> None:
    """The planner gets row counts of indexes and of materialized views, as it gets those of tables."""
    known = registry()
    read_as = add_dataflow(known, name, shards=("s.a",))
    counts = export_counts(known.dataflows("ns"), Reported(**{name: reports}))
    found = catalogue(known.sources("ns"), known.dataflows("ns"), rows=counts)

    assert counts == {read_as: rows}
    assert {r.parent: r.rows for r in found.relations if r.parent == name} == {name: rows}
    assert [c.rows for c in counts_of(found, [read_as])] == ([] if rows is None else [rows])


def test_an_export_that_hydrates_has_the_count_of_the_one_before() -> None:
    """Readers are planned anew with the edit of an index; its new revision has reported nothing yet."""
    known = registry()
    add_dataflow(known, "totals", shards=("s.a",))
    (state,) = known.dataflows("ns")
    assert state.active is not None
    description = state.active.revision.description
    (index,) = description.index_exports
    new = replace(description, index_exports=(replace(index, id=GlobalId("new/index")),))
    coming = replace(state.active, name="r2", number=2, revision=replace(state.active.revision, description=new))
    mark(state, pending=PendingRevision(coming, ReplacementId("totals", "r2")))

    before = export_counts([state], Reported(totals=("4096",)))
    assert before == {index.id: 4096, GlobalId("new/index"): 4096}
    after = export_counts([state], Reported(totals=("4096",), new=("65536",)))
    assert after == {index.id: 4096, GlobalId("new/index"): 65536}
