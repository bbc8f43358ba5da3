"""The exchanged shape: the rows that move, their files, and the attempt that counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.arrangement.histories import contents, updates
from tests.oracle.histories import History
from tests.oracle.plans import GET_T, GET_U, counted, joined
from tests.oracle.recursions.recursive_plans import ENDLESS, E
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import in_process
from tidemark_protocol.plan.lir import Plan
from tidemark_replica.arrangement.errors import DiskFull, DiskLimitExceeded
from tidemark_replica.arrangement.rows.task_share import TaskShare
from tidemark_replica.arrangement.step import BatchWriter, StepId
from tidemark_replica.kernels.reduce.partial_sums import PartialSumsSpec
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.runner import complete_report
from tidemark_replica.render.lowering import lower_dataflow
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.exchanged_plan import exchanged_plan
from tidemark_replica.render.plan.fragments import Fragment, Fragments
from tidemark_replica.render.plan.jvm_frames import StageFrame, nodes_of, pipelines_of
from tidemark_replica.render.task.description import StageReport
from tidemark_replica.render.task.exchange_io import ExchangeReader, ExchangeWriter

TYPES = [pa.int64(), pa.string()]
ROWS = [((n % 7, f"r{n}"), 3, 1) for n in range(40)] + [("boom", 3, 1)]


def lowered(plan: Plan, folder: Path, **tables: object) -> Fragments:
    with in_process(folder, tables or TU, History(dict.fromkeys(tables or TU, ()), 1, 1)) as made:  # type: ignore[arg-type]
        return lower_dataflow(made.describe(plan), {}, "token")


def cut(plan: Plan, folder: Path, *, single_time: bool = True) -> StageFrame | None:
    fragments = lowered(plan, folder)
    (fragment,) = fragments.fragments
    assert isinstance(fragment, Fragment)
    return exchanged_plan(fragment.stage, fragments.arrangements, single_time=single_time)


def dealing(folder: Path, attempt: int, slot: int, own: TaskShare, rows: list[Any]) -> list[Any]:
    """The rows that an attempt, which deals these out nine at a time, yields to Spark."""
    return list(ExchangeWriter(folder, attempt, slot, own, freely).write([updates(TYPES, rows)], (0,), chunk_rows=9))


def freely(size: int, what: str) -> None:
    """There is no limit."""


def test_rows_meet_in_their_task_and_sums_are_made_before_they_move(tmp_path: Path) -> None:
    """Counts by a, of a join on a, indexed by a: both sides move, the joined rows lie well, and so do the groups."""
    stage = cut(counted(joined(GET_T, GET_U)), tmp_path)
    assert stage is not None
    assert [len(names) for names in pipelines_of(stage)] == [1, 1, 1], "two readers, and what joins, counts and keeps"

    alone = cut(counted(GET_T), tmp_path / "alone")
    assert alone is not None
    reads, counts = (set(names) for names in pipelines_of(alone))
    assert reads.isdisjoint(counts)
    assert any(isinstance(n, p.Kernel) and isinstance(n.spec, PartialSumsSpec) for n in nodes_of(alone))


def test_a_loop_stays_in_one_task(tmp_path: Path) -> None:
    """Its iterations are of one place: the fragment has no other shape."""
    fragments = lowered(ENDLESS, tmp_path, e=E)
    for fragment in fragments.fragments:
        if isinstance(fragment, Fragment) and any(isinstance(n, p.LoopInTask) for n in nodes_of(fragment.stage)):
            assert exchanged_plan(fragment.stage, fragments.arrangements, single_time=True) is None


@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_an_exchange_brings_each_key_to_one_task(tasks: int, tmp_path: Path) -> None:
    """Two streams through one exchange, read in the order that it does not have; errors come to the first task."""
    sent = [
        batch
        for slot in (1, 0)
        for own in range(tasks)
        for batch in dealing(tmp_path, 10 * slot + own, slot, TaskShare(own, tasks), ROWS[own::tasks])
    ]
    arrived: Counter[object] = Counter()
    affinity: dict[object, set[int]] = {}
    for share in range(tasks):
        mine = [b.filter(pa.compute.equal(b.column(0), share)) for b in sent]
        dealt = ExchangeReader(mine, tmp_path)
        read = [dict(contents(dealt.read(slot, freely))) for slot in (0, 1)]
        dealt.finish()
        assert read[0] == read[1]
        arrived.update(read[0])
        for row, error, _ in read[0]:
            affinity.setdefault(error or row[0], set()).add(share)
        again = ExchangeReader(mine, tmp_path)
        assert dict(contents(again.read(1, freely))) == read[0], "a task that is run again reads the same"

    assert arrived == contents([updates(TYPES, ROWS)])
    assert all(len(tasks) == 1 for tasks in affinity.values())
    assert affinity["boom"] == {0}


def test_exchanged_rows_count_for_writer_and_reader(tmp_path: Path) -> None:
    """To the byte: with one less the task says what it was for, and what to do."""
    dealt = dealing(tmp_path, 1, 0, TaskShare(), ROWS)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.exchange"))

    def written(room: int) -> None:
        spend = BatchWriter(tmp_path, StepId("s"), bytes_left=room).spend
        list(ExchangeWriter(tmp_path, 2, 0, TaskShare(), spend).write([updates(TYPES, ROWS)], (0,), chunk_rows=9))

    def read(room: int) -> None:
        spend = BatchWriter(tmp_path, StepId("s"), bytes_left=room).spend
        assert contents(ExchangeReader(dealt, tmp_path).read(0, spend)) == contents([updates(TYPES, ROWS)])

    for act in (written, read):
        act(size)
        with pytest.raises(DiskLimitExceeded, match=r"an exchange needs .* give the replica more scratch"):
            act(size - 1)


def test_a_full_disk_is_reported_by_the_writer_of_an_exchange(tmp_path: Path) -> None:
    """Every writer of state reports it so."""
    (tmp_path / "slot0.1.exchange").symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="give the replica more scratch"):
        dealing(tmp_path, 1, 0, TaskShare(), ROWS)


def test_a_stream_without_a_reader_is_an_error(tmp_path: Path) -> None:
    """A call that ends with rows left has a hole in it."""
    dealt = ExchangeReader(dealing(tmp_path, 1, 3, TaskShare(), ROWS), tmp_path)
    with pytest.raises(ValueError, match=r"slots \[3\]"):
        dealt.finish()


def test_only_a_complete_attempt_of_every_task_is_believed(tmp_path: Path) -> None:
    """A task that was killed between two stages and repeated, a speculative copy, a task that never reported."""

    def report(stage: str, share: int, attempt: int) -> None:
        StageReport(attempt, {}, (), {}).write(tmp_path, stage, share)

    pipelines = (("read",), ("join", "keep"))
    for share in (0, 1):
        report("read", share, 10 + share)
    report("join", 0, 20)  # killed before it came to keep anything
    for attempt in (21, 22):  # repeated, and a copy of that
        report("join", 0, attempt)
        report("keep", 0, attempt)
    with pytest.raises(StepFailed, match="join, keep"):
        complete_report(tmp_path, pipelines, "the step", 2)

    report("keep", 1, 30)
    report("join", 1, 31)
    with pytest.raises(StepFailed, match="join, keep"):
        complete_report(tmp_path, pipelines, "the step", 2)

    report("keep", 1, 31)
    assert complete_report(tmp_path, pipelines, "the step", 2).attempt == 10
