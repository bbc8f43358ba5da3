"""A rendered dataflow: prepared plans, the manifests of its arrangements, and its frontier.

    build ──> frontier = as_of ──(plan, run, commit)──> frontier = the step's upper ──> ... ──> empty, or dropped

`run` reads manifests and writes files that no manifest names; only `commit` changes state. So a step may fail, be
cancelled or run twice at any point; the store sweeps the files that it left (`store.sweep`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from tidemark_persist import FilePart
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.batches.full_disk import raising_disk_full
from tidemark_replica.arrangement.errors import ArrangementError
from tidemark_replica.arrangement.rows.updates import update_schema
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import apply
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render.errors import StepFailed
from tidemark_replica.render.execution.background_merges import BackgroundMerges
from tidemark_replica.render.execution.runner import PreparedFragment, PreparedLoop, Runner
from tidemark_replica.render.execution.step_rows import StepRows, TimedFile
from tidemark_replica.render.execution.step_run import StepRun
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.index import IndexTrace, compacted
from tidemark_replica.render.lowering import sink_file
from tidemark_replica.render.plan.fragments import Fragments
from tidemark_replica.render.stepped_dataflow import SinkDelta, Step, StepOutcome
from tidemark_replica.render.telemetry.operator_costs import OperatorCost, OperatorCosts
from tidemark_replica.render.telemetry.progress import HydrationMeter, HydrationProgress

SWEEP_SECONDS = 60.0
"""Seconds between sweeps while the dataflow steps. Files of attempts that do not count (a worker died, a task was
repeated) exist no longer than that."""


class RenderedDataflow:
    """The dataflow that `build.build` makes, as the command loop drives it."""

    def __init__(
        self,
        description: DataflowDescription,
        fragments: Fragments,
        prepared: Sequence[PreparedFragment | PreparedLoop],
        imported: Mapping[GlobalId, IndexTrace],
        store: ArrangementStore,
        runner: Runner,
        background_merges: BackgroundMerges,
        folder: Path,
        exchange_policy: ExchangePolicy,
    ) -> None:
        self.description = description
        self._fragments, self._prepared, self._imported = fragments, tuple(prepared), dict(imported)
        self._store, self._runner, self._background_merges, self._folder = store, runner, background_merges, folder
        self._exchange_policy = exchange_policy
        self._cache = BatchCache(store.directory)  # a run's thread alone uses it, and there is one at a time
        self._frontier = Frontier.at(description.as_of)
        self._hydrated, self._steps = False, 0
        self._unswept, self._swept = False, time.monotonic()
        self.running: StepId | None = None
        self._progress: HydrationMeter | None = None
        self._rows = StepRows()
        for arrangement, layout in fragments.arrangements.items():
            store.install(Manifest.empty(arrangement, layout, description.as_of))
        columns = {e.id: e.columns for e in description.index_exports}
        self._indexes = {id: IndexTrace(id, store, a, columns[id]) for id, a in fragments.indexes.items()}
        self._by_arrangement: dict[ArrangementId, list[IndexTrace]] = {a: [] for a in fragments.arrangements}
        for index in self._indexes.values():
            self._by_arrangement[index.arrangement].append(index)
        imports = {index.arrangement: id for id, index in imported.items()}
        self._ids = imports | {a: indexes[0].id for a, indexes in self._by_arrangement.items() if indexes}
        self._operators = OperatorCosts(fragments, self._ids)
        arranged = {a for each in self._prepared for a in each.arranged}
        self._watched = tuple({a for each in self._prepared for a in each.watched_arrangements} - arranged)
        self._inputs_grow = not imported and all(i.monotonic for i in description.source_imports)
        self.build_seconds = 0.0
        """The seconds that building it took, without Spark's start."""
        self._holds = [index.hold(description.as_of) for index in imported.values()]

    @property
    def frontier(self) -> Frontier:
        """Every export is complete below it: the lower of the next step, empty once `until` is reached."""
        return self._frontier

    @property
    def indexes(self) -> Mapping[GlobalId, IndexTrace]:
        """The exported indexes."""
        return self._indexes

    def arrangements(self) -> list[Manifest]:
        """The manifests of its own operators and indexes, without imported ones."""
        return [self._store.current(arrangement) for arrangement in self._fragments.arrangements]

    def operators(self) -> list[OperatorCost]:
        """The state of each operator, and the time that it has worked."""
        return self._operators.work(self.arrangements())

    def channels(self) -> Collection[tuple[int, int]]:
        """(from, to): operators, by their places among `operators`, whose rows reach others."""
        return self._operators.channels

    def rows_at_most(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]]) -> int:
        """An upper bound of the updates that a step to `upper` reads. Opens no file."""
        limit = self._limit(upper)
        return self._rows.at_most(self._timed_files(limit, inputs, map(self._store.current, self._watched)), limit)

    def rows_about(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]]) -> int | None:
        """The updates that a step to `upper` reads, within a factor of two; None: not known. Opens no file."""
        limit = self._limit(upper)
        return self._rows.about(self._timed_files(limit, inputs, map(self._store.current, self._watched)), limit)

    def narrowed(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]], rows: int) -> Frontier:
        """The upper of a step that reads at most `rows` updates, or those of one time: `upper` at most.

        Runs on a pool while no step runs: it may read columns of times. Raises PersistError, ArrangementError.
        """
        limit, begin = self._limit(upper), self._frontier.encode()
        with self._store.pin(*self._watched) as pinned:
            end = self._rows.narrowed(self._timed_files(limit, inputs, pinned.values()), begin, limit, rows)
        return upper if end == limit else Frontier.at(end)

    def heavy_times(
        self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]], rows: int
    ) -> list[tuple[int, int]]:
        """The times of a step to `upper` with at least `rows` updates, and how many each has. Like `narrowed` in all
        else."""
        limit = self._limit(upper)
        with self._store.pin(*self._watched) as pinned:
            return self._rows.heavy(
                self._timed_files(limit, inputs, pinned.values()), self._frontier.encode(), limit, rows
            )

    def plan_step(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]]) -> Step:
        """The step from the frontier to `upper`; to the empty frontier past `until`, and when inputs have ended.

        `inputs` has the parts to read of every source import: `shard.listen(lower, upper)`, or at hydration
        `shard.snapshot_parts(as_of)` and `shard.listen(as_of + 1, upper)`. Imported indexes are read from their traces
        and must be complete up to `upper`. Raises ValueError for an upper at or below the frontier, and for a missing
        input.
        """
        lower = self._frontier.time
        if lower is None or upper <= self._frontier:
            raise ValueError(f"dataflow {self.description.name} is complete up to {self._frontier}, not before {upper}")
        missing = [i.id for i in self.description.source_imports if i.id not in inputs]
        if missing:
            raise ValueError(f"the step of dataflow {self.description.name} has no parts for its input {missing[0]}")
        if self._unswept:  # the last one failed; if it was for want of room, merges make some
            self._merge()
        upper = self._until_hydrated(upper, inputs)
        limit, until = self._limit(upper), self.description.until
        if until is not None and until <= upper.encode():
            upper = Frontier.empty()
        parts = {id: tuple(_clipped(p, limit)) for id, p in inputs.items()}
        self._steps += 1
        step = StepId(f"{self._folder.name}-s{self._steps}")
        return Step(step, lower, upper, Time(limit), not self._hydrated, parts, self.description.is_one_shot)

    def is_quiet(self, step: Step) -> bool:
        """Whether no input has an update for the step and no update falls due: `skip` is enough. Opens no file."""
        if step.hydrates or any(step.parts.values()):
            return False
        batches = (b for a in self._watched for b in self._store.current(a).batches)
        return not any(b.last_time >= step.lower and b.first_time < step.limit for b in batches)

    def skip(self, step: Step) -> StepOutcome:
        """The outcome of a quiet step, to be committed like any other."""
        return StepOutcome(step, {}, (), self._deltas(step, lambda _: ((), 0)), None)

    def run(self, step: Step) -> StepOutcome:
        """Run the step on the calling thread. Raises StepFailed or StepCancelled with the state unchanged."""
        self._check_current(step)
        self._runner.begin()
        if self._unswept or time.monotonic() - self._swept > SWEEP_SECONDS:
            self._sweep()
        self._steps += 1
        run = StepId(f"{step.id}r{self._steps}")
        self.running = run
        folder = self._folder / "steps" / run
        try:
            names = (*self._fragments.arrangements, *(i.arrangement for i in self._imported.values()))
            busy = self._store.busy  # before pinning: a merge may be settled at any time, none begins during a step
            with self._store.pin(*names) as pinned, raising_disk_full(folder):
                folder.mkdir(parents=True)
                done = StepRun(
                    step,
                    run,
                    folder,
                    self._runner,
                    self._store,
                    pinned,
                    busy,
                    self._cache,
                    self._operators,
                    inputs_grow=self._inputs_grow,
                )
                if step.hydrates:
                    self._progress = HydrationMeter(self._fragments.fragments, done.rows, self._ids)
                    done.watch(self._progress)
                for prepared in self._prepared:
                    done.run(prepared)
        except ArrangementError as cause:
            self._discard_run(folder)
            raise StepFailed(f"step {run} of dataflow {self.description.name} failed: {cause}") from cause
        except BaseException:
            self._discard_run(folder)
            raise
        finally:
            self.running, self._progress = None, None
            self._runner.end()
        deltas = self._deltas(step, done.published)
        merges = tuple(done.merges)
        return StepOutcome(step, done.written, merges, deltas, folder, done.jobs, done.spent, done.cold_reads)

    def progress(self) -> HydrationProgress | None:
        """The progress of the running hydration; None if none runs. Callable from any thread; reads small files."""
        progress = self._progress
        return None if progress is None else progress.snapshot()

    def commit(self, outcome: StepOutcome) -> None:
        """Commit the whole outcome, or raise StepFailed with the state unchanged.

        Nothing can fail after the manifests have changed. The store deletes replaced files, and those of a step whose
        commit failed, without waiting for the disk.
        """
        step = outcome.step
        self._check_current(step)
        try:
            olds = map(self._store.current, self._fragments.arrangements)
            self._store.commit_all([(old, self._advanced(old, outcome)) for old in olds])
        except ArrangementError as cause:
            self._store.discard(outcome.batches)
            self._unswept = True
            raise StepFailed(
                f"step {step.id} of dataflow {self.description.name} was not committed: {cause}"
            ) from cause
        self._frontier, self._hydrated = step.upper, True
        self._store.discard(outcome.batches)
        self._operators.add(outcome.spent)
        if not self.description.is_query:  # a query is peeked once
            self._merge()
        for hold in self._holds:
            hold.release() if step.upper.is_empty else hold.advance(step.upper.encode() - 1)

    def compact(self, export: GlobalId, since: Frontier) -> None:
        """Let the index's times before `since` be compacted."""
        if export in self._indexes:
            index = self._indexes[export]
            index.allow_compaction(since)
            self._store.commit(index.manifest, compacted(index.manifest, self._by_arrangement[index.arrangement]))
        self._background_merges.settle()

    def cancel(self) -> None:
        """Cancel the running step, if any, which raises StepCancelled. Returns at once."""
        self._runner.cancel()

    def drop(self) -> None:
        """Drop the dataflow. Its files are deleted later; what is left when the process dies goes at the next start."""
        self._runner.close()
        self._background_merges.close()
        for hold in self._holds:
            hold.release()
        for arrangement in self._fragments.arrangements:
            self._store.remove(arrangement)
        self._store.remove_later(partial(_remove_rest, self._folder, self._store))

    def _merge(self) -> None:
        """Settle a finished background merge and begin the next one; called between two steps."""
        self._background_merges.settle()
        self._background_merges.begin(self._fragments.arrangements)

    def _limit(self, upper: Frontier) -> int:
        """The end of the updates that a step to `upper` computes."""
        until = self.description.until
        return upper.encode() if until is None else min(upper.encode(), until)

    def _timed_files(
        self, limit: int, inputs: Mapping[GlobalId, Sequence[FilePart]], watched: Iterable[Manifest]
    ) -> list[TimedFile]:
        """The files with updates of a step that ends at `limit`: of shards, of imported indexes, and of scheduled
        updates. A hydration reads them from the first time on."""
        begin = self._frontier.encode() if self._hydrated else 0
        files = [TimedFile.of_part(part) for parts in inputs.values() for part in parts if part.lower < limit]
        for manifest in watched:
            batches = (b for b in manifest.batches if b.last_time >= begin and b.first_time < limit)
            files += [TimedFile.of_batch(batch, manifest.layout, self._cache, begin) for batch in batches]
        return files

    def _until_hydrated(self, upper: Frontier, inputs: Mapping[GlobalId, Sequence[FilePart]]) -> Frontier:
        """The upper of the step. A large hydration with a delta join ends with the as_of: then all tasks share it,
        which they could not do with later times.
        """
        rows = sum(part.rows_about for parts in inputs.values() for part in parts)
        rows += sum(index.manifest.rows for index in self._imported.values())
        if self._hydrated or not self._exchange_policy.is_large(rows) or not self._fragments.has_delta_joins:
            return upper
        return min(upper, Frontier.at(self.description.as_of + 1))

    def _discard_run(self, folder: Path) -> None:
        """Delete the files of a failed run now, and those that its tasks still write before the next run."""
        shutil.rmtree(folder, ignore_errors=True)
        self._sweep()
        self._unswept = True

    def _sweep(self) -> None:
        """Delete files of attempts that do not count. No other run of this dataflow may be running."""
        self._unswept, self._swept = False, time.monotonic()
        self._store.sweep((), of=f"{self._folder.name}-")

    def _check_current(self, step: Step) -> None:
        if self._frontier.time != step.lower:
            raise StepFailed(f"step {step.id} begins at {step.lower}, but the frontier is {self._frontier}")

    def _advanced(self, manifest: Manifest, outcome: StepOutcome) -> Manifest:
        """The manifest of an arrangement after the step."""
        arrangement, step = manifest.arrangement, outcome.step
        if step.is_only_step and not self._by_arrangement[arrangement]:
            return manifest.append((), step.lower, step.upper.encode())  # nobody reads it any more
        moved = manifest.append(outcome.written.get(arrangement, ()), step.lower, step.upper.encode())
        moved = compacted(moved, self._by_arrangement[arrangement])
        for merged in outcome.merges:
            if merged.merge.arrangement == arrangement:
                moved = apply(moved, merged.merge, merged.result)
        return moved

    def _deltas(
        self, step: Step, published: Callable[[str], tuple[tuple[Path, ...], int]]
    ) -> dict[GlobalId, SinkDelta]:
        deltas = {}
        for position, export in enumerate(self.description.sink_exports):
            files, rows = published(sink_file(position))
            schema = update_schema(self._fragments.sinks[export.id])
            deltas[export.id] = SinkDelta(export.id, step.lower, step.upper, schema, files, rows)
        return deltas


def _remove_rest(folder: Path, store: ArrangementStore) -> None:
    """Delete the folder of a dropped dataflow, and its files in the store."""
    shutil.rmtree(folder, ignore_errors=True)
    store.sweep((), of=f"{folder.name}-")
    store.clear(of=f"{folder.name}-")


def _clipped(parts: Sequence[FilePart], limit: int) -> Iterator[FilePart]:
    """The parts up to `limit`."""
    for part in parts:
        if part.lower < limit:
            yield part.before(limit)
