"""Decisions about revisions, as pure functions over a few Dataflows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.handlers.revised_dataflows import (
    ask,
    dataflow,
    mark,
    rev,
    superseded,
    table,
    with_ended_revision,
    writing_own,
)
from tidemark_operator.catalogue.dataflow_state import DataflowState, Obstacle, ReplacementId
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.replacement_closure import as_replaced, closure, dependants, is_stale, joins
from tidemark_operator.controller.frontiers.collection import Collection, ExportOnReplica
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.succession import LATELY_MS, Succession
from tidemark_operator.handlers.revisions.replacement_decision import (
    Decision,
    Keep,
    Replace,
    ReplacementMember,
    Serve,
    cannot_run_beside,
    decide,
    judge,
    succession,
)
from tidemark_operator.handlers.revisions.takeover import _may_be_finished, obstacle_of
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId

A1, A2, A3 = rev("a", 1), rev("a", 2), rev("a", 3)
B1, B2 = rev("b", 1, imports=["a/i/1"], tables=()), rev("b", 2, imports=["a/i/2"], tables=(), spec="spec 1")
C1 = rev("c", 1, imports=["b/i/1"], tables=())
A_EDITED = dataflow("a", A1, A2)
B, C = dataflow("b", B1), dataflow("c", C1)
B_OVER = with_ended_revision(dataflow("b", B1))
B_COMING = dataflow("b", B1, B2, root="a/2")
WITH_A2 = ReplacementId("a", "a-r2")

DECISIONS: list[tuple[str, DataflowState, list[DataflowState], Decision]] = [
    ("never planned", dataflow("a", None, spec="spec 1"), [], Replace()),
    ("as planned", dataflow("a", A1), [B], Serve()),
    ("edited", dataflow("a", A1, spec="spec 2"), [B], Replace()),
    ("edited and pending", A_EDITED, [B], Keep()),
    ("edited again", dataflow("a", A1, A2, spec="spec 3"), [B], Replace()),
    ("the edit is reverted", dataflow("a", A1, A2, spec="spec 1"), [B], Serve()),
    ("its import is edited", B, [A_EDITED], Replace(WITH_A2)),
    ("it is pending with the edit", B_COMING, [A_EDITED], Keep()),
    ("the edit was edited", B_COMING, [dataflow("a", A1, A3)], Replace(ReplacementId("a", "a-r3"))),
    ("the edit of its import was reverted", B_COMING, [dataflow("a", A1)], Serve()),
    ("edited itself while its import is", dataflow("b", B1, spec="spec 9"), [A_EDITED], Replace(WITH_A2)),
    (
        "pending by itself when its import is edited",
        dataflow("b", B1, rev("b", 3, imports=["a/i/1"], tables=())),
        [A_EDITED],
        Replace(WITH_A2),
    ),
    ("deep below the edit: its import is pending with it", C, [A_EDITED, B_COMING], Replace(WITH_A2)),
    ("deep below the edit, before its import is planned anew", C, [A_EDITED, B], Serve()),
    ("its import is gone, whoever replaced it", B, [dataflow("a", A2)], Replace()),
    (
        "pending on what took over meanwhile",
        dataflow("d", rev("d", 1), rev("d", 2, imports=["a/i/1"])),
        [dataflow("a", A2)],
        Replace(),
    ),
    (
        "reads a table that stays",
        dataflow("d", rev("d", 1, tables=[table("a", 1)])),
        [dataflow("a", rev("a", 1, view=1), rev("a", 2, view=1))],
        Serve(),
    ),
    (
        "reads a table whose columns change",
        dataflow("d", rev("d", 1, tables=[table("a", 1)])),
        [dataflow("a", rev("a", 1, view=1), rev("a", 2, view=2))],
        Replace(WITH_A2),
    ),
    ("its import is edited, and it is over", B_OVER, [A_EDITED], Serve()),
    ("its import is gone, and it is over", B_OVER, [dataflow("a", A2)], Serve()),
    (
        "it is over, and was pending with the edit",
        with_ended_revision(dataflow("b", B1, B2, root="a/2")),
        [A_EDITED],
        Serve(),
    ),
    ("it was over, and is edited", with_ended_revision(dataflow("b", B1, spec="spec 9")), [A_EDITED], Replace(WITH_A2)),
    ("its table was finished before it took over", superseded(dataflow("a", A1, A2), "a-r2"), [B], Replace()),
    ("... and then its edit is reverted", superseded(dataflow("a", A1, A2, spec="spec 1"), "a-r2"), [B], Serve()),
    ("... as it took over", superseded(dataflow("a", A2), "a-r2"), [], Replace()),
    ("... and is pending with another table", superseded(dataflow("a", A2, A3, spec="spec 3"), "a-r2"), [B], Keep()),
    ("... while its import is edited", superseded(B_COMING, "b-r2"), [A_EDITED], Replace(WITH_A2)),
    (
        "reads a table whose columns change, and is over",
        with_ended_revision(dataflow("d", rev("d", 1, tables=[table("a", 1)]))),
        [dataflow("a", rev("a", 1, view=1), rev("a", 2, view=2))],
        Serve(),
    ),
]


@pytest.mark.parametrize(("state", "others", "decision"), [d[1:] for d in DECISIONS], ids=[d[0] for d in DECISIONS])
def test_which_revision_is_wanted(state: DataflowState, others: list[DataflowState], decision: Decision) -> None:
    """The wanted revision follows from the spec, and from what others are about to replace."""
    assert decide(state, [state, *others]) == decision


def test_the_closure_is_all_importers_of_a_dropped_export() -> None:
    """However deep, once it is planned anew; who reads the table that stays is not in it."""
    a = dataflow("a", rev("a", 1, view=1), rev("a", 2, view=1))
    reader = dataflow("d", rev("d", 1, tables=[table("a", 1)]))

    assert [m.key.name for m in closure(a, [a, B, C, reader])] == ["a", "b"]
    assert [m.key.name for m in closure(a, [C, reader, B_COMING, a])] == ["a", "b", "c"]


def test_an_ended_dataflow_is_not_in_the_closure() -> None:
    """It needs nothing of what it read. While it has a pending revision of that replacement, which it is to give up,
    the replacement waits for that."""
    coming = with_ended_revision(dataflow("b", B1, B2, root="a/2"))

    assert closure(A_EDITED, [A_EDITED, B_OVER, C]) == [A_EDITED]
    assert closure(A_EDITED, [A_EDITED, coming]) == [A_EDITED, coming]


def test_of_two_edits_above_one_the_first_by_name_comes_first() -> None:
    """The other waits: nobody is replaced twice at a time."""
    z = dataflow("z", rev("z", 1), rev("z", 2))
    both = dataflow("b", rev("b", 1, imports=["z/i/1", "a/i/1"], tables=()))

    assert joins(both, [z, A_EDITED, both]) == WITH_A2


def test_a_plan_is_made_on_the_catalogue_after_its_takeover() -> None:
    """Members of its replacement as pending, all others as they serve; without a replacement, all as they serve."""
    other = dataflow("z", rev("z", 1), rev("z", 2))
    view = as_replaced([A_EDITED, B, other], WITH_A2)

    assert [d.active for d in view] == [A2, B1, other.active]
    assert [d.active for d in as_replaced([A_EDITED, B], None)] == [A1, B1]
    assert is_stale(B1.revision, view)
    assert not is_stale(B2.revision, view)


@pytest.mark.parametrize(("serves", "stale"), [(1, False), (2, True)])
def test_a_reader_of_an_adopted_table_follows_an_edit_that_takes_it_away(serves: int, stale: bool) -> None:
    """The table's id begins with the uid of an object that is gone; its address has the Dataflow's name."""
    reader = rev("d", 1, tables=[table("a", 1)]).revision
    owner = dataflow("a", rev("a", serves, view=serves))
    owner.uid = "a uid that is in no id"

    assert is_stale(reader, [owner]) == stale
    assert not is_stale(reader, [dataflow("b", rev("b", 1, view=1))])


def test_an_indirect_reader_cannot_be_an_input() -> None:
    """Also where only a pending revision, or one that is just being stored, does."""
    storing = dataflow("d", rev("d", 1))
    storing.planning.reads = C1.revision.reads[:1]

    assert dependants(dataflow("a", A1), [dataflow("a", A1), B, C, storing]) == {"b", "c", "d"}
    assert dependants(C, [dataflow("a", A1), B, C]) == set()


def test_a_successor_may_write_at_once_to_a_table_without_a_writer() -> None:
    """A new version of a table, or a new one; what its predecessor writes it may only watch."""
    before, same, other = (rev("a", n, view=v).revision for n, v in ((1, 1), (2, 1), (3, 2)))
    ids = {GlobalId("a/i/2"): GlobalId("a/i/1"), GlobalId("a/v/2"): GlobalId("a/v/1")}

    assert succession(before, same).predecessors == ids
    assert succession(before, same).read_only == {"a/v/2"}
    assert succession(before, other).read_only == set()
    assert succession(A1.revision, same).predecessors == {GlobalId("a/i/2"): GlobalId("a/i/1")}


def test_a_task_that_reads_the_table_which_is_still_written_cannot_run_beside() -> None:
    """On a new version of the table it can."""
    before = writing_own(rev("a", 1, view=1)).revision

    assert cannot_run_beside(before, writing_own(rev("a", 2, view=1)).revision)
    assert not cannot_run_beside(before, writing_own(rev("a", 2, view=2)).revision)
    assert not cannot_run_beside(rev("a", 1, view=1).revision, rev("a", 2, view=1).revision)


NOW = 1_000_000
READY = ReplacementMember("a", True, hydrated=2, exports=2, level_ms=NOW - 1)
MEMBERS: list[tuple[str, list[ReplacementMember], Obstacle | None]] = [
    ("all are as far", [READY, replace(READY, name="b")], None),
    ("suspended, or cannot run beside", [READY, ReplacementMember("b", True, at_once=True)], None),
    ("not planned yet", [READY, ReplacementMember("b", False)], Obstacle("Dataflow b is to be planned anew with it")),
    (
        "cannot be planned yet",
        [READY, ReplacementMember("b", False, waits="waits for the index a.i")],
        Obstacle("Dataflow b is to be planned anew with it: waits for the index a.i"),
    ),
    ("not installed", [replace(READY, waits="waits for x", exports=0)], Obstacle("Dataflow a waits for x")),
    (
        "hydrating",
        [replace(READY, hydrated=1)],
        Obstacle("Dataflow a hydrates: 1 of 2 exports are hydrated"),
    ),
    (
        "never as far",
        [replace(READY, level_ms=None)],
        Obstacle("Dataflow a is not as far as the revision that serves"),
    ),
    (
        "was as far once",
        [replace(READY, level_ms=NOW - LATELY_MS - 1)],
        Obstacle("Dataflow a is not as far as the revision that serves"),
    ),
    (
        "one fails: said before whatever others wait for",
        [replace(READY, hydrated=0), replace(READY, name="b", failure="v: step failed: boom")],
        Obstacle("Dataflow b fails: v: step failed: boom", failed=True),
    ),
    (
        "one cannot be planned",
        [ReplacementMember("a", False), ReplacementMember("b", False, obstacle="line 1: no column x")],
        Obstacle("Dataflow b cannot be planned on it: line 1: no column x", failed=True),
    ),
    ("hydrated, and fails since", [replace(READY, failure="v: boom")], Obstacle("Dataflow a fails: v: boom", True)),
]


@pytest.mark.parametrize(("members", "held"), [m[1:] for m in MEMBERS], ids=[m[0] for m in MEMBERS])
def test_a_replacement_takes_over_together_or_not_at_all(
    members: list[ReplacementMember], held: Obstacle | None
) -> None:
    """And says by whom it is held back."""
    assert judge(members, NOW) == held


@pytest.mark.parametrize(("upper", "held"), [(Frontier.at(9), False), (Frontier.empty(), True)])
def test_a_table_that_may_be_finished_meanwhile_holds_the_edit_back(upper: Frontier, held: bool) -> None:
    """Taking over would leave the old contents in it, until it is replaced itself."""
    description = rev("a", 2, view=1).revision.description
    (sink,) = (e.id for e in description.sink_exports)
    export = Collection(sink, "a", description.as_of, (), 0, ShardId("a/v/v1"))
    export.replicas = {
        ReplicaId("r1"): ExportOnReplica(export.since, write=upper),
        ReplicaId("r2"): ExportOnReplica(export.since),
    }
    beside = Dataflow("a", description, 0, Succession(read_only=frozenset({sink})))

    assert bool(_may_be_finished(beside, [export])) is held
    assert _may_be_finished(replace(beside, succession=None), [export]) == ""


@pytest.mark.parametrize("through", [False, True], ids=["reads it", "reads what reads it"])
def test_an_edit_waits_for_the_statuses_that_name_the_edit_before(through: bool) -> None:
    """Nothing that it takes away is imported, so it would take over alone; and an operator that began then would find
    in a late status that the revision which was replaced is still to be waited for."""
    registry = Registry()
    first = dataflow("a", rev("a", 2, view=2), rev("a", 3, view=2))
    reader = dataflow("b", rev("b", 2, tables=[table("a", 2)], view=1))
    beyond = dataflow("c", rev("c", 2, tables=[table("b", 1)]))
    for state in (first, reader, beyond):
        registry.put_dataflow(state)
    late = beyond if through else reader

    def held() -> str:
        _, found = obstacle_of(first, registry, lambda _: None, NOW)
        return "" if found is None else found.message

    mark(late, unmarked=True)
    assert held() == f"Dataflow {late.key.name} is just being replaced with another"
    ask(late, deleting=True)
    assert held().startswith("Dataflow a hydrates")
    mark(ask(late, deleting=False), unmarked=False)
    assert held().startswith("Dataflow a hydrates")
