"""Joins that read an index which their own dataflow exports, and indexes by one key, which are one arrangement."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle.harness import INDEX, OBJECT, SINK, DataflowHarness, Updates, consolidated, contents, counted, delta
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.plans import GET_T, GET_U, distinct, project
from tests.oracle.seeds import seeds
from tests.oracle.tables import TU
from tests.oracle.variants import compacted, read_index
from tests.oracle.variants.in_process import InPieces, in_process, interrupted
from tests.oracle.variants.in_tasks import InTasks
from tests.render.sharing.test_shared_arrangements import BOTH, FIRST, FailsAt, ands, failing, join
from tests.stored_files import live_files, stored_files
from tidemark_planner.lir.joins.delta import delta_join
from tidemark_planner.lir.joins.inputs import JoinProblem
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription, IndexExport
from tidemark_protocol.plan.lir import Get, LetRec, Plan, RecursiveBinding, Union, refs
from tidemark_protocol.types import BOOLEAN, Column
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.index import IndexHold, IndexTrace

OF_A_RECURSION, INSIDE = "of a recursion", "inside a recursion"
BASE, BY_KEY, AGAIN, OTHER = GlobalId("base"), GlobalId("by-key"), GlobalId("again"), GlobalId("other-key")
X = Get(LocalId("x"), BOTH.schema)


def recursion(first: Plan) -> Plan:
    """The pairs of a plan, and those that its own pairs lead to from them, in four rounds at most."""
    reached = distinct(Union((project(first, 0, 1), join(first, X, [(1, 0)]))), *refs(BOTH.schema))
    return LetRec((RecursiveBinding(X.id, reached, 4, True),), X)


VIEWS = {
    "of a table": BOTH,
    "of failures": failing(GET_T),
    "of groups": distinct(BOTH, *refs(BOTH.schema)),
    OF_A_RECURSION: recursion(BOTH),
}


def base(view: Plan, key: int | None) -> Get:
    """The view, read by its index or as a stream."""
    return Get(BASE, view.schema, None if key is None else (refs(view.schema)[key],))


def three_ways(*inputs: Plan, equal: tuple[tuple[int, int], ...] = ((0, 2), (2, 4))) -> Plan:
    """A delta join of three inputs of two columns, of which the view is one."""
    row = refs(tuple(c for i in inputs for c in i.schema))
    equalities = tuple(call("=", (row[left], row[right]), BOOLEAN) for left, right in equal)
    keys = tuple(((0,),) if isinstance(i, Get) and i.id == BASE else () for i in inputs)
    made = delta_join(JoinProblem(inputs, keys, equalities, FilterProject((), (row[1], row[5]))))
    assert made is not None
    return made


def reads(view: Plan, key: int | None) -> dict[str, Plan]:
    """The rows that a second view makes of the first."""
    get = base(view, key)
    return {
        "one join": join(get, FIRST, [(0, 0)]),
        "on the right, and with itself": ands(join(FIRST_OF_T, get, [(0, 0)]), join(get, get, [(0, 0)])),
        "three ways": three_ways(get, GET_U, BOTH),
        "three ways, in the middle": three_ways(FIRST_OF_T, get, BOTH),
        "three ways, by two keys": three_ways(get, GET_U, BOTH, equal=((0, 2), (1, 4))),
        "joined and streamed": ands(join(get, FIRST, [(0, 0)]), base(view, None)),
        "by another key": join(get, FIRST, [(1, 0)]),
        INSIDE: recursion(get),
    }


FIRST_OF_T = project(GET_T, 1, 0)
READS = tuple(reads(BOTH, 0))
AGREE = [(name, view) for name in READS for view in VIEWS if name != INSIDE and view != OF_A_RECURSION]
AGREE += [("one join", OF_A_RECURSION), (INSIDE, "of a table")]  # slower than all others
SAVED = {"on the right, and with itself": 3, "by another key": 0, INSIDE: 0}


def described(of: DataflowHarness, view: Plan, read: Plan, *more: IndexExport) -> DataflowDescription:
    """The view with an index by its first column, and a second view that reads it, with a sink and an index."""
    made = of.describe(project(view, 0, 1))  # as `read`, two columns of integers
    objects = (BuildDesc(BASE, view), BuildDesc(OBJECT, read))
    exports = (index_of(BY_KEY, view, 0), *more, *made.index_exports)
    made = replace(made, objects=objects, index_exports=exports)
    check_dataflow(made)
    return made


def index_of(id: GlobalId, view: Plan, key: int) -> IndexExport:
    columns = tuple(Column(f"x{i}", c.type, c.nullable) for i, c in enumerate(view.schema))
    return IndexExport(id, BASE, (key,), columns)


def joins(dataflow: RenderedDataflow) -> int:
    return sum(m.arrangement.endswith(("-join", "-delta")) for m in dataflow.arrangements())


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(("name", "view"), AGREE)
def test_agree_an_own_index_and_a_copy(name: str, view: str, seed: int, tmp_path: Path) -> None:
    """However steps are cut, divided and cut short, and however far the index is compacted."""
    history = random_history(TU, seed + 60, changes=8)
    with in_process(tmp_path, TU, history) as of:
        copied, shared = (described(of, VIEWS[view], reads(VIEWS[view], key)[name]) for key in (None, 0))
        expected = of.run(copied, random_bounds(history, seed))
        assert of.run(shared, random_bounds(history, seed + 1)) == expected
        assert of.run(shared, random_bounds(history, seed + 2), runner=InPieces) == expected
        tasks = ExchangePolicy(2, from_rows=6)
        assert of.run(shared, random_bounds(history, seed + 3), runner=InTasks, exchange_policy=tasks) == expected
        assert interrupted(of, shared, random_bounds(history, seed + 4))[1] == expected
        assert compacted(of, shared, random_bounds(history, seed + 5))[1] == expected
        kept = [of.build(each) for each in (copied, shared)]
        assert joins(kept[0]) - joins(kept[1]) == SAVED.get(name, 1)
        for dataflow in kept:
            dataflow.drop()


def test_a_collection_that_is_read_by_its_index_alone_is_not_written_to_a_file(tmp_path: Path) -> None:
    history = random_history(TU, 4)
    with in_process(tmp_path, TU, history) as of:
        for name, files in (("one join", 0), ("joined and streamed", 1)):
            dataflow = of.build(described(of, BOTH, reads(BOTH, 0)[name]))
            outcome = of.step(dataflow, history.last + 1)
            assert outcome.folder is not None
            assert len(list(outcome.folder.glob("shared*"))) == files
            outcome.release()
            dataflow.drop()


def test_indexes_by_one_key_are_one_arrangement(tmp_path: Path) -> None:
    """It is readable from the least of what its indexes have to be, and one that is let go of holds nothing."""
    history = random_history(TU, 9, changes=8)
    middle, end = history.times[3], history.last + 1
    with in_process(tmp_path, TU, history) as of:
        more = (index_of(AGAIN, BOTH, 0), index_of(OTHER, BOTH, 1))
        dataflow = of.build(described(of, BOTH, reads(BOTH, 0)["one join"], *more))
        indexes = dataflow.indexes
        assert indexes[BY_KEY].arrangement == indexes[AGAIN].arrangement != indexes[OTHER].arrangement
        assert len({m.arrangement for m in dataflow.arrangements()}) == len(dataflow.arrangements())
        assert sum(m.arrangement.endswith("-index") for m in dataflow.arrangements()) == 3  # by both keys, and INDEX
        hold = indexes[AGAIN].hold(history.as_of)
        of.steps(dataflow, [middle, end])
        expected = contents(_read(of, dataflow, BY_KEY, middle), middle)
        dataflow.compact(BY_KEY, Frontier.at(end - 1))
        assert indexes[BY_KEY].since == Frontier.at(history.as_of)
        dataflow.compact(AGAIN, Frontier.at(middle))
        assert indexes[BY_KEY].since == Frontier.at(history.as_of), "a reader of the other index holds it"
        hold.release()
        dataflow.compact(AGAIN, Frontier.at(middle))
        assert indexes[BY_KEY].since == indexes[AGAIN].since == Frontier.at(middle)
        assert contents(_read(of, dataflow, AGAIN, middle), middle) == expected
        dataflow.compact(AGAIN, Frontier.empty())
        assert indexes[BY_KEY].since == Frontier.at(end - 1)
        assert indexes[OTHER].since == Frontier.at(history.as_of)
        dataflow.drop()


def _read(of: DataflowHarness, dataflow: RenderedDataflow, index: GlobalId, time: int) -> Updates:
    trace = Trace(dataflow.indexes[index].manifest, BatchCache(of.store.directory))
    return consolidated(counted(trace.rows_at(time)))


def test_a_view_goes_on_where_the_index_that_it_reads_is_let_go_of(tmp_path: Path) -> None:
    """A dropped export is compacted to the end; the join reads on."""
    history = random_history(TU, 13, changes=8)
    end = history.last + 1
    with in_process(tmp_path, TU, history) as of:
        copied, shared = (described(of, BOTH, reads(BOTH, key)["one join"]) for key in (None, 0))
        expected = of.run(copied, [end])
        dataflow = of.build(shared)
        made = of.steps(dataflow, [history.times[2]])
        dataflow.compact(BY_KEY, Frontier.empty())
        made.update(of.steps(dataflow, [*history.times[3:], end]))
        assert consolidated(made) == expected
        assert read_index(of, dataflow, end - 1) == contents(consolidated(made), end - 1)
        assert dataflow.indexes[INDEX].upper == Frontier.at(end)
        assert SINK in {e.id for e in dataflow.description.sink_exports}
        dataflow.drop()


@pytest.mark.parametrize("name", ["one join", "on the right, and with itself", "three ways", "joined and streamed"])
def test_crash_between_the_index_and_the_view_that_reads_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is committed alone, and nothing that a failed run arranged is read or left."""
    history = random_history(TU, 3, changes=8)
    with in_process(tmp_path, TU, history) as of:
        copied, shared = (described(of, BOTH, reads(BOTH, key)[name]) for key in (None, 0))
        expected = of.run(copied, [history.last + 1])
        dataflow = of.build(shared, runner=FailsAt)
        made: Updates = Counter()
        for upper in [*history.times[1:], history.last + 1]:
            step = dataflow.plan_step(Frontier.at(upper), of.inputs(dataflow, upper))
            before = of.store.arrangements()
            for fragment in ("fragment1", "fragment0"):
                monkeypatch.setattr(FailsAt, "fragment", fragment)
                with pytest.raises(StepFailed) if step.hydrates else suppress(StepFailed):
                    dataflow.run(step).release()
                assert of.store.arrangements() == before
            monkeypatch.setattr(FailsAt, "fragment", "")
            outcome = dataflow.run(step)
            dataflow.commit(outcome)
            made.update(delta(outcome, SINK))
            outcome.release()
            assert read_index(of, dataflow, upper - 1) == contents(made, upper - 1)
        of.store.sweep(())
        root = of.store.directory
        assert stored_files(root) == live_files(of.store.arrangements())
        dataflow.drop()
    assert consolidated(made) == expected


@pytest.mark.parametrize("name", READS)
def test_until_ends_the_index_and_the_view_that_reads_it(name: str, tmp_path: Path) -> None:
    """A step beyond the end reads no update at or after it."""
    history = random_history(TU, 8, changes=8)
    until = history.times[-2]
    with in_process(tmp_path, TU, history) as of:
        ends = [replace(described(of, BOTH, reads(BOTH, key)[name]), until=until) for key in (None, 0)]
        expected, found = (of.run(each, [history.times[2], until]) for each in ends)
        assert found == expected


@dataclass
class Reader:
    """A reader of one export, which may be read by the controller from `allowed` on, and by a reader's hold."""

    index: IndexTrace
    allowed: int
    held: tuple[int, IndexHold] | None = None
    dropped: bool = False

    @property
    def times(self) -> list[int]:
        """The earliest times that it may read; none once it is dropped and not held."""
        return [*([] if self.dropped else [self.allowed]), *([self.held[0]] if self.held else [])]

    def moves(self, rng: np.random.Generator, dataflow: RenderedDataflow, last: int) -> None:
        """One of what a controller and readers do."""
        match rng.integers(0, 6):
            case 0 if self.held is None and not self.dropped:
                at = int(rng.integers(self.allowed, last + 1))
                self.held = (at, self.index.hold(at))
            case 1 if self.held is not None:
                self.held[1].release()
                self.held = None
            case 2 if self.held is not None:
                at = int(rng.integers(self.held[0], last + 1))
                self.held[1].advance(at)
                self.held = (at, self.held[1])
            case 3 if rng.integers(0, 3) == 0:
                self.dropped = True
            case _:
                self.allowed = int(rng.integers(self.allowed, last + 1))
        dataflow.compact(self.index.id, Frontier.empty() if self.dropped else Frontier.at(self.allowed))


@pytest.mark.parametrize("seed", seeds(8))
def test_agree_indexes_that_are_one_arrangement_and_one_that_keeps_every_time(seed: int, tmp_path: Path) -> None:
    """However two exports are held, compacted and dropped, each has every time that it has to have; and no other."""
    rng = np.random.default_rng(seed)
    history = random_history(TU, seed + 90, changes=12)
    with in_process(tmp_path, TU, history) as of:
        alone = of.build(described(of, BOTH, reads(BOTH, None)["one join"]))
        both = of.build(described(of, BOTH, reads(BOTH, 0)["one join"], index_of(AGAIN, BOTH, 0)))
        readers = [Reader(both.indexes[id], history.as_of) for id in (BY_KEY, AGAIN)]
        expected, made = Counter[Any](), Counter[Any]()
        for upper in [*history.times[1:], history.last + 1]:
            expected.update(of.steps(alone, [upper]))
            made.update(of.steps(both, [upper]))
            for reader in rng.permutation(np.array([*readers, *readers], dtype=object)):
                reader.moves(rng, both, upper - 1)
            wanted = [at for reader in readers for at in reader.times]
            assert {r.index.since.encode() for r in readers} == {min([upper - 1, *wanted])}
            for time in range(min(wanted, default=upper - 1), upper):
                found = {repr(contents(_read(of, both, id, time), time)) for id in (BY_KEY, AGAIN)}
                assert found == {repr(contents(_read(of, alone, BY_KEY, time), time))}
            of.store.sweep(())
        assert consolidated(made) == consolidated(expected)
        assert len(both.arrangements()) == len(alone.arrangements()) - 1
        for dataflow in (alone, both):
            dataflow.drop()
