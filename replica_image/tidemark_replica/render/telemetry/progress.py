"""The progress of a hydration, in percent per operator, computed in the driver from the counts of its tasks.

    fragment 1   read orders      rows read, of those in its snapshot
                 read lineitem
                 join             that of its inputs, at most 99; 100 once every task has ended
    fragment 2   reduce           0: not begun
                 index totals
                                  in total: operators weighted by the rows that are read below them

Behind an exchange, progress is the rows received, of those sent. `snapshot` reads a few small files; any thread may
call it while the step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from tidemark_protocol.ids import GlobalId
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.fragments import Fragment, LoopFragment
from tidemark_replica.render.plan.jvm_frames import ExchangeFrame, Frame, StageFrame, UnionFrame
from tidemark_replica.render.task.progress_counters import OperatorCount, has_reported, read_counts
from tidemark_replica.render.telemetry.operator_names import name_operator, numbered

BUSY, DONE = 99.0, 100.0
"""An operator that has read all its input may still work; it is done when it has ended."""
Rows = Callable[[p.Pipeline], int]


@dataclass(frozen=True)
class OperatorProgress:
    """`rows`: the rows that are read below the operator."""

    name: str
    percent: float
    rows: int


@dataclass(frozen=True)
class HydrationProgress:
    """The progress of a whole hydration."""

    operators: tuple[OperatorProgress, ...]

    @property
    def percent(self) -> float:
        rows = sum(o.rows for o in self.operators)
        return sum(o.percent * o.rows for o in self.operators) / rows if rows else 0.0


@dataclass(frozen=True)
class _RunningFragment:
    """A fragment in the shape in which it runs, or ran."""

    stage: StageFrame
    tasks: int
    folder: Path
    ended: bool = False


@dataclass(frozen=True)
class _Position:
    """The progress of a node, and the rows that are read below it."""

    percent: float
    rows: int


class HydrationMeter:
    """The progress of one run of a hydration. `rows` gives the updates of a leaf."""

    def __init__(
        self,
        fragments: Sequence[Fragment | LoopFragment],
        rows: Rows,
        ids: Mapping[ArrangementId, GlobalId],
    ) -> None:
        """`ids`: those of imported and exported indexes."""
        self._fragments, self._rows, self._ids = tuple(fragments), rows, ids
        self._begun: dict[str, _RunningFragment] = {}
        self._loops_ended: set[str] = set()

    def fragment_started(self, fragment: str, stage: StageFrame, tasks: int, folder: Path) -> None:
        """Note that a fragment begins to run."""
        self._begun[fragment] = _RunningFragment(stage, tasks, folder)

    def fragment_ended(self, fragment: str) -> None:
        """Note that a fragment has ended."""
        if fragment in self._begun:
            self._begun[fragment] = replace(self._begun[fragment], ended=True)
        self._loops_ended.add(fragment)

    def snapshot(self) -> HydrationProgress:
        """The progress now."""
        published: dict[str, int] = {}
        found: list[OperatorProgress] = []
        for fragment in self._fragments:
            if isinstance(fragment, LoopFragment):
                rows = sum(published.get(name, 0) for name in fragment.loop.entering)
                published |= dict.fromkeys(fragment.loop.leaving, rows)
                percent = DONE if fragment.loop.name in self._loops_ended else 0.0
                found.append(OperatorProgress("recursion", percent, rows))
                continue
            begun = self._begun.get(fragment.name)
            look = _FragmentProgress(begun, self._rows, self._ids, published)
            look.stage(fragment.stage if begun is None else begun.stage)
            found += look.operators
        names = numbered([operator.name for operator in found])
        return HydrationProgress(tuple(replace(o, name=name) for o, name in zip(found, names, strict=True)))


@dataclass
class _FragmentProgress:
    """The progress of one fragment. `published`: the rows that are read below what fragments publish."""

    begun: _RunningFragment | None
    rows_of: Rows
    ids: Mapping[ArrangementId, GlobalId]
    published: dict[str, int]
    operators: list[OperatorProgress] = field(default_factory=list)

    def stage(self, frame: StageFrame) -> _Position:
        """Add the operators of a stage, after those of the stages below."""
        return self._walked(frame, self._counted(frame))

    def _walked(self, frame: StageFrame, counts: Sequence[OperatorCount]) -> _Position:
        received: dict[int, tuple[_Position, int | None]] = {}
        slots: list[_Position] = []
        for below in frame.inputs:
            if isinstance(below, ExchangeFrame):
                received |= {_slot_of(sender): self._sender_progress(sender) for sender in below.inputs}
            else:
                slots.append(self._frame(below))
        return _StageProgress(self, received, slots, counts).point(frame.tree)

    def _frame(self, frame: Frame) -> _Position:
        """The position of a frame. A plan of Catalyst streams its rows through the task, so it has its input's
        position."""
        match frame:
            case StageFrame():
                return self.stage(frame)
            case UnionFrame(inputs) | ExchangeFrame(inputs):
                return _mean([self._frame(i) for i in inputs])
            case _:
                return self._frame(frame.input)

    def _sender_progress(self, sender: StageFrame) -> tuple[_Position, int | None]:
        """The progress of a stage before an exchange, and the updates that the stage has sent (None: not known yet)."""
        counts = self._counted(sender)
        point = self._walked(sender, counts)
        return point, counts[1].rows if point.percent == DONE and len(counts) > 1 else None

    def _counted(self, frame: StageFrame) -> Sequence[OperatorCount]:
        """The counts of all tasks; an operator has ended when it has in all of them. Empty: no counts."""
        if self.begun is None:
            return ()
        shares = range(self.begun.tasks)
        by_task = [read_counts(self.begun.folder, frame.name, share) for share in shares]
        if self.begun.ended or all(has_reported(self.begun.folder, frame.name, share) for share in shares):
            totals = _added([counts for counts in by_task if counts])
            size = sum(1 for _ in p.nodes_of(frame.tree))
            return [OperatorCount(totals[at].rows if totals else 0, True) for at in range(size)]
        found = _added([counts for counts in by_task if counts])
        return found if all(by_task) else [OperatorCount(each.rows) for each in found]


@dataclass
class _StageProgress:
    """A walk over the tree of one stage with its counts."""

    fragment: _FragmentProgress
    received: Mapping[int, tuple[_Position, int | None]]
    slots: Sequence[_Position]
    counts: Sequence[OperatorCount]
    places: Iterator[int] = field(default_factory=count)

    def point(self, node: p.Pipeline) -> _Position:
        place = next(self.places)
        counted = self.counts[place] if place < len(self.counts) else OperatorCount()
        point = self._reached(node, counted)
        if counted.ended:
            point = _Position(DONE, point.rows)
        elif point.percent > BUSY:
            point = _Position(BUSY, point.rows)
        if isinstance(node, p.Publish | p.LoopOutput):
            self.fragment.published[node.name] = point.rows
        if isinstance(node, p.ArrangeKernel):
            self.fragment.published[node.arrangement] = point.rows
        named = name_operator(node, self.fragment.ids)
        if named is not None:
            self.fragment.operators.append(OperatorProgress(named[0], point.percent, point.rows))
        return point

    def _reached(self, node: p.Pipeline, counted: OperatorCount) -> _Position:
        match node:
            case p.IndexSource(name) if name in self.fragment.published:
                return _Position(_percent(counted.rows, self.fragment.rows_of(node)), self.fragment.published[name])
            case p.Source() | p.IndexSource():
                rows = self.fragment.rows_of(node)
                return _Position(_percent(counted.rows, rows), rows)
            case p.ReadPublished(name) | p.ReadPublishedErrors(name):
                return _Position(
                    _percent(counted.rows, self.fragment.rows_of(node)), self.fragment.published.get(name, 0)
                )
            case p.ExchangeInput(slot):
                sender, sent = self.received[slot]
                return _Position(_percent(counted.rows, sent or 0), sender.rows)
            case p.JvmInput(slot):
                return self.slots[slot]
            case _:
                return _mean([self.point(below) for below in p.inputs_of(node)])


def _slot_of(sender: StageFrame) -> int:
    assert isinstance(sender.tree, p.Exchange), f"{sender.name} does not end with an exchange"
    return sender.tree.slot


def _added(by_task: Sequence[Sequence[OperatorCount]]) -> list[OperatorCount]:
    """The sums of the tasks' counts, operator by operator."""
    return [OperatorCount(sum(c.rows for c in each), all(c.ended for c in each)) for each in zip(*by_task, strict=True)]


def _mean(points: Sequence[_Position]) -> _Position:
    """The progress of several streams, weighted by their rows."""
    rows = sum(point.rows for point in points)
    if rows == 0:
        return _Position(0.0, 0)
    return _Position(sum(point.percent * point.rows for point in points) / rows, rows)


def _percent(rows: int, of: int) -> float:
    return min(DONE * rows / of, BUSY) if of else 0.0
