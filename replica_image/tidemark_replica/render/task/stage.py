"""Stages: one Python call in a task, from its inputs to its report.

    description ──> StepContext ──> the tree's generators ──> rows for Catalyst (or none)
                                          │ input consumed to the end
                                          ▼
                                    merges, report              an attempt that is cut short reports nothing

Runs in Spark's Python workers and in step workers. Workers import this module; only the tree is sent to them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np

from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.errors import StepAbandoned
from tidemark_replica.arrangement.rows.consolidate import consolidate
from tidemark_replica.arrangement.rows.task_share import WHOLE_SHARE, TaskShare
from tidemark_replica.arrangement.rows.updates import Updates, diffs, errors, make_updates, rechunk, row_columns, times
from tidemark_replica.arrangement.step import BatchWriter, StepContext
from tidemark_replica.evaluator import evaluation
from tidemark_replica.kernels.arrange import arrange
from tidemark_replica.kernels.continual_task import continual_task
from tidemark_replica.kernels.joins.delta_join import delta_join
from tidemark_replica.kernels.joins.half_join_path import half_join
from tidemark_replica.kernels.joins.join import JoinSide, join
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.kernel_registry import KERNELS
from tidemark_replica.render.task.description import (
    PROPERTY,
    FeedbackFile,
    Iterations,
    PublishedFiles,
    StageReport,
    StepDescription,
)
from tidemark_replica.render.task.exchange_io import ExchangeReader, ExchangeWriter
from tidemark_replica.render.task.in_step_merges import in_step_merges
from tidemark_replica.render.task.jvm_input_slots import JvmInputSlots, StageFeed
from tidemark_replica.render.task.loop import rounds
from tidemark_replica.render.task.loop.fixpoint import Fixpoint
from tidemark_replica.render.task.loop.settle import run_loop
from tidemark_replica.render.task.progress_counters import OperatorCount, ProgressCounters
from tidemark_replica.render.task.stage_inputs import (
    read_constants,
    read_index,
    read_loop_input,
    read_loop_variable,
    read_published,
    read_published_errors,
    read_source,
)
from tidemark_replica.render.task.timing import OperatorClock
from tidemark_replica.render.task.update_files import UpdatesFile
from tidemark_replica.values.arrow_files import read_batches

CHECK_SECONDS = 0.1
_CACHES: dict[Path, BatchCache] = {}


def run_stage(name: str, tree: p.Pipeline, feed: StageFeed, rows: Iterable[Any]) -> Iterator[Updates]:
    """The function that `mapInArrow` calls. `rows` come from the JVM; without inputs they have no meaning."""
    stage = Stage.in_task(feed, rows)
    stage.count(name, tree)
    yield from stage.evaluate(tree)
    stage.report(name)


class Stage:
    """One attempt of a stage."""

    def __init__(
        self, description: Path, attempt: int, slots: JvmInputSlots | ExchangeReader, share: TaskShare = WHOLE_SHARE
    ) -> None:
        self._folder, self._attempt, self._slots = description.parent, attempt, slots
        self._description = StepDescription.read(description)
        self._context = _context(self._description, description, share)
        self._open = self._context.cache.opened
        self._checked = time.monotonic()
        self._published: dict[str, PublishedFiles] = {}
        self._spools: dict[str, Path] = {}
        self._fed_back: list[FeedbackFile] = []
        self._settled: list[Fixpoint] = []
        self._counting: ProgressCounters | None = None
        self._clock = OperatorClock()

    @classmethod
    def in_task(cls, feed: StageFeed, rows: Iterable[Any]) -> Self:
        """The attempt that the current Spark task is."""
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None, "a stage runs in a Spark task"
        description, attempt = Path(task.getLocalProperty(PROPERTY)), int(task.taskAttemptId())
        share = int(task.partitionId()) % feed.tasks  # a union of streams has the shares of one after those of another
        slots = ExchangeReader(rows, description.parent) if feed.exchanged else JvmInputSlots(feed.slots, rows)
        return cls(description, attempt, slots, TaskShare(share, feed.tasks))

    def count(self, name: str, tree: p.Pipeline) -> None:
        """Count the operators' progress if the step hydrates."""
        if self._description.hydrates:
            self._counting = ProgressCounters(self._folder, name, self._context.share.index, self._attempt, tree)

    def evaluate(self, tree: p.Pipeline) -> Iterator[Updates]:
        """Yield the output of a tree. Raises StepAbandoned soon after the step has ended."""
        evaluate: Callable[[Stage, Any], Iterator[Updates]] = _EVALUATE[type(tree)]
        count = OperatorCount() if self._counting is None else self._counting.of(tree)
        turn = self._clock.turn
        above = turn(tree)
        for batch in evaluate(self, tree):
            self._check_alive()
            count.rows += batch.num_rows
            turn(above)
            yield batch
            above = turn(tree)
        turn(above)
        count.ended = True

    def _check_alive(self) -> None:
        """Raise StepAbandoned or DiskLimitExceeded, checked every CHECK_SECONDS.

        A task without JVM inputs or outputs does not learn otherwise that its job was cancelled, or how much scratch
        space others have used.
        """
        if time.monotonic() - self._checked > CHECK_SECONDS:
            self._context.writer.check_space()
            if not self._context.writer.is_step_alive:
                raise StepAbandoned(f"step {self._description.step} has been cancelled or dropped")
            if self._counting is not None:
                self._counting.write_if_due()
            self._checked = time.monotonic()

    def report(self, name: str) -> None:
        """Write the report: all input has been consumed."""
        if self._counting is not None:
            self._counting.finish()
        self.finish(name).write(self._folder, name, self._context.share.index)

    def finish(self, name: str) -> StageReport:
        """Do the step's own merges, and return the report: batches, operator times of stage `name`, and cold reads."""
        self._slots.finish()
        done = {a: tuple(refs) for a, refs in self._context.writer.written.items()}
        merges = list(in_step_merges(self._context, self._description.busy, done, self._clock))
        for loop in self._settled:
            done |= loop.written
            merges += loop.merges
        spent, cold_reads = self._clock.times_of(name), self._context.cache.opened - self._open
        return StageReport(
            self._attempt, done, tuple(merges), self._published, tuple(self._fed_back), spent, cold_reads
        )

    def _slot(self, node: p.JvmInput | p.ExchangeInput) -> Iterator[Updates]:
        if isinstance(self._slots, ExchangeReader):
            return self._slots.read(node.slot, self._context.writer.spend)
        return self._slots.read(node.slot)

    def _exchange(self, node: p.Exchange) -> Iterator[Any]:
        spend = self._context.writer.spend
        writer = ExchangeWriter(self._folder, self._attempt, node.slot, self._context.share, spend)
        return writer.write(self.evaluate(node.input), node.key, self._context.chunk_rows)

    def _source(self, node: p.Source) -> Iterator[Updates]:
        return read_source(self._description, node, self._context.share)

    def _index_source(self, node: p.IndexSource) -> Iterator[Updates]:
        return read_index(self._context, self._description.limit, node)

    def _read_published(self, node: p.ReadPublished) -> Iterator[Updates]:
        return read_published(self._folder, self._description, node.name, self._context.share)

    def _published_errors(self, node: p.ReadPublishedErrors) -> Iterator[Updates]:
        return read_published_errors(self._folder, self._description, node, self._context.share)

    def _entering(self, node: p.LoopInput) -> Iterator[Updates]:
        return read_loop_input(self._folder, self._description, node)

    def _variable(self, node: p.LoopVariable) -> Iterator[Updates]:
        return read_loop_variable(self._folder, self._description, self._context, node)

    def _constants(self, node: p.Constants) -> Iterator[Updates]:
        return read_constants(self._folder.parent.parent, self._description, node, self._context.share)

    def _read_spooled(self, node: p.ReadSpool) -> Iterator[Updates]:
        assert node.name in self._spools, f"{node.name} is read before it has been spooled to its end"
        yield from read_batches(self._spools[node.name])

    def _project(self, node: p.Project) -> Iterator[Updates]:
        for batch in self.evaluate(node.input):
            columns = row_columns(batch)
            yield make_updates([columns[c] for c in node.columns], times(batch), diffs(batch), errors(batch))

    def _compute(self, node: p.Compute) -> Iterator[Updates]:
        compute = evaluation(node.mfp)
        for batch in self.evaluate(node.input):
            computed = compute(batch)
            if computed.num_rows:
                yield computed

    def _negated(self, node: p.NegateDiffs) -> Iterator[Updates]:
        for batch in self.evaluate(node.input):
            ok = errors(batch).is_null().to_numpy(zero_copy_only=False)
            diff = np.where(ok, -diffs(batch), diffs(batch))
            yield make_updates(row_columns(batch), times(batch), diff, errors(batch))

    def _concat(self, node: p.Concat) -> Iterator[Updates]:
        return chain.from_iterable(self.evaluate(i) for i in node.inputs)

    def _join(self, node: p.JoinKernel) -> Iterator[Updates]:
        left = ((JoinSide.LEFT, batch) for batch in self.evaluate(node.left))
        right = ((JoinSide.RIGHT, batch) for batch in self.evaluate(node.right))
        return join(self._context, node.spec, chain(left, right), evaluation)

    def _delta_join(self, node: p.DeltaKernel) -> Iterator[Updates]:
        return delta_join(self._context, node.spec, [self.evaluate(i) for i in node.inputs])

    def _at_changes(self, node: p.ContinualTaskKernel) -> Iterator[Updates]:
        watched, view = map(self.evaluate, node.inputs)
        return continual_task(self._context, node.spec, watched, view)

    def _half_join(self, node: p.HalfJoinKernel) -> Iterator[Updates]:
        return half_join(self._context, node.spec, self.evaluate(node.met), self.evaluate(node.stream))

    def _kernel(self, node: p.Kernel) -> Iterator[Updates]:
        return KERNELS[type(node.spec)](self._context, node.spec, self.evaluate(node.input))

    def _arrange(self, node: p.ArrangeKernel) -> Iterator[Updates]:
        return arrange(self._context, node.arrangement, self.evaluate(node.input))

    def _later_iteration(self, node: p.LaterIteration) -> Iterator[Updates]:
        return rounds.later_iteration(self.evaluate(node.input), node.left, node.loops)

    def _publish(self, node: p.Publish) -> Iterator[Updates]:
        return self._published_as(node.name, node.types, self.evaluate(node.input), node.timed)

    def _leave(self, node: p.LoopOutput) -> Iterator[Updates]:
        return self._published_as(node.name, node.types, rounds.without_iterations(self.evaluate(node.input)))

    def _published_as(
        self, name: str, types: p.Types, updates: Iterator[Updates], timed: bool = False
    ) -> Iterator[Updates]:
        """Pass the updates through a file of this attempt. The file counts once the driver accepts the attempt."""
        with UpdatesFile(self._folder, f"{name}.{self._attempt}.arrow", types) as out:
            for chunk in self._consolidated(updates):
                out.write(chunk, timed=timed)
                yield chunk
        self._published[name] = out.published()

    def _feed_back(self, node: p.Feedback) -> Iterator[Updates]:
        loops = len(self._description.iteration)
        return self._for_rounds(node, loops, lambda chunk: rounds.next_iteration(chunk, loops, node.last))

    def _enter(self, node: p.EnterLoop) -> Iterator[Updates]:
        around = self._description.iteration
        return self._for_rounds(node, len(around) + 1, lambda chunk: rounds.first_iteration(chunk, around))

    def _for_rounds(
        self, node: p.Feedback | p.EnterLoop, loops: int, made: Callable[[Updates], Updates]
    ) -> Iterator[Updates]:
        """Write what is made of each chunk for later rounds, and pass the chunk on."""
        iterations: set[Iterations] = set()
        with UpdatesFile(self._folder, f"{node.name}.{self._attempt}.arrow", node.types) as out:
            for chunk in self._consolidated(self.evaluate(node.input)):
                later = made(chunk)
                out.write(later)
                iterations |= rounds.iterations_of(later, loops)
                yield chunk
        self._fed_back.append(FeedbackFile(node.name, out.file, tuple(sorted(iterations))))

    def _consolidated(self, updates: Iterator[Updates]) -> Iterator[Updates]:
        for _, chunk in rechunk(((None, batch) for batch in updates), self._context.chunk_rows):
            consolidated = consolidate(chunk)
            if consolidated.num_rows:
                yield consolidated

    def _settle(self, node: p.LoopInTask) -> Iterator[Updates]:
        """Run the loop's rounds as stages of this attempt."""
        for _ in self.evaluate(node.input):
            pass

        def run(part: int, description: Path) -> StageReport:
            self._check_alive()
            stage = Stage(description, self._attempt, JvmInputSlots((), ()))
            for _ in stage.evaluate(node.trees[part]):
                pass
            return stage.finish(node.loop.name)

        done, left = run_loop(
            node.loop, self._description, self._folder, self._attempt, self._published, self._context.cache, run
        )
        self._settled.append(done)
        self._published |= left
        return iter(())

    def _spool(self, node: p.Spool) -> Iterator[Updates]:
        """Pass the updates through a file of this attempt only, which is deleted with the step's folder."""
        with UpdatesFile(self._folder, f"{node.name}.{self._attempt}.spool", node.types) as out:
            for batch in self.evaluate(node.input):
                out.write(batch)
                yield batch
        self._spools[node.name] = self._folder / out.file

    def _drain(self, node: p.Drain) -> Iterator[Updates]:
        for _ in self.evaluate(node.input):
            pass
        return iter(())


_EVALUATE: dict[type, Callable[[Stage, Any], Iterator[Updates]]] = {
    p.JvmInput: Stage._slot,
    p.ExchangeInput: Stage._slot,
    p.Exchange: Stage._exchange,
    p.Source: Stage._source,
    p.IndexSource: Stage._index_source,
    p.ReadPublished: Stage._read_published,
    p.ReadPublishedErrors: Stage._published_errors,
    p.LoopInput: Stage._entering,
    p.LoopVariable: Stage._variable,
    p.Constants: Stage._constants,
    p.ReadSpool: Stage._read_spooled,
    p.Project: Stage._project,
    p.Compute: Stage._compute,
    p.NegateDiffs: Stage._negated,
    p.Concat: Stage._concat,
    p.JoinKernel: Stage._join,
    p.DeltaKernel: Stage._delta_join,
    p.HalfJoinKernel: Stage._half_join,
    p.ContinualTaskKernel: Stage._at_changes,
    p.Kernel: Stage._kernel,
    p.ArrangeKernel: Stage._arrange,
    p.Publish: Stage._publish,
    p.Spool: Stage._spool,
    p.LaterIteration: Stage._later_iteration,
    p.Feedback: Stage._feed_back,
    p.EnterLoop: Stage._enter,
    p.LoopOutput: Stage._leave,
    p.LoopInTask: Stage._settle,
    p.Drain: Stage._drain,
}


def _context(description: StepDescription, path: Path, share: TaskShare) -> StepContext:
    store, bytes_left = description.store, description.bytes_left
    cache = _CACHES.get(store) or _CACHES.setdefault(store, BatchCache(store))
    bytes_left = None if bytes_left is None else bytes_left // share.of
    hydrates = description.hydrates
    writer = BatchWriter(store, description.step, bytes_left=bytes_left, alive_file=path, large=hydrates)
    lower, upper = description.lower, description.upper
    manifests, limit = description.manifests, description.limit
    return StepContext(
        lower,
        upper,
        hydrates,
        manifests,
        cache,
        writer,
        share,
        until=limit,
        is_only_step=description.is_only_step,
        is_later_round=any(description.iteration),
        inputs_add_only=description.inputs_add_only,
    )
