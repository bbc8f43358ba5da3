"""The order of a loop's rounds: one time after another, and at each time from the lowest iteration up.

    time 5     round: loop inputs at 5                     ──> fed back for iterations 1, 4
               round: iteration 1                          ──> for 2
               round: iteration 2                          ──> for 3, 4
               ...                                             until nothing is pending
    time 9     round: loop inputs at 9   ...

A loop inside another runs to its end in each iteration of the outer one:

    iteration 0        iterations (0, 0), (0, 1), (0, 2)    what leaves the inner loop goes on in iteration 0
    iteration 1        iterations (1, 0), (1, 1)

An iteration feeds back to later iterations only, so the lowest pending one is complete when it is taken. A round is a
small step, [t, t + 1): its operators read the pinned arrangements and what earlier rounds wrote. Nothing is committed
before the step is, so a step that is cut short leaves only files to be swept.

The caller runs a round's parts: as Spark jobs, or in its own task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import Merge, apply
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.kernels.temporal import first_due
from tidemark_replica.render.errors import EndlessRecursion
from tidemark_replica.render.plan.pipeline import Loop, LoopPart
from tidemark_replica.render.stepped_dataflow import Merged
from tidemark_replica.render.task.description import (
    FeedbackFile,
    Iterations,
    PublishedFiles,
    StageReport,
    StepDescription,
)

RunPart = Callable[[int, Path], StageReport]
"""Runs a part of the body, by its position, with the description at a path."""

Files = Mapping[str, tuple[str, ...]]
Published = dict[str, PublishedFiles]


class Fixpoint:
    """One loop in one run of a step. Afterwards it has what was written, and what leaves the loop."""

    def __init__(self, loop: Loop, outer: StepDescription, folder: Path, cache: BatchCache, run: RunPart) -> None:
        self._loop, self._folder, self._run = loop, folder.absolute(), run
        self._cache = cache
        # rounds read what earlier ones keep, and retract what the ones before them put out
        self._outer = replace(outer, is_only_step=False, inputs_add_only=False)
        self._manifests = {a: outer.manifests[a] for a in loop.arrangements}
        self._own: dict[str, BatchRef] = {}
        self._rounds = 0
        self.leaving: dict[str, PublishedFiles] = {}

    def settle(self, entering: Mapping[str, PublishedFiles]) -> None:
        """Run the rounds of every time with loop inputs or with updates that fall due, and of the as_of.

        Raises EndlessRecursion.
        """
        times = {time for published in entering.values() for time in published.times}
        if self._outer.hydrates:
            times.add(self._outer.lower)
        ended = self._outer.lower
        while (time := self._next_time(times, ended)) is not None:
            self._settle(time, {name: p.files for name, p in entering.items() if time in p.times})
            ended = time + 1

    def _next_time(self, times: set[int], ended: int) -> int | None:
        """The first time that is left. A row that falls due may have been scheduled by an earlier time of this step."""
        found = {time for time in times if time >= ended}
        due = (first_due(self._trace(name), ended, self._outer.limit) for name in self._loop.scheduled)
        return min(found.union(time for time in due if time is not None), default=None)

    def has_due(self, part: LoopPart | Loop, time: int) -> bool:
        """Whether an update inside a part falls due at a time."""
        return any(first_due(self._trace(name), time, time + 1) is not None for name in part.scheduled)

    def _trace(self, name: ArrangementId) -> Trace:
        return Trace(self._manifests[name], self._cache)

    def _settle(self, time: int, entering: Files) -> None:
        hydrates = self._outer.hydrates and time == self._outer.lower
        rounds = _LoopRounds(self._loop, time, self)
        _add(self.leaving, rounds.settle((), entering, hydrates))
        for file in rounds.read_files():
            Path(file).unlink(missing_ok=True)

    def new_round(self, loop: str) -> Path:
        """A folder for the files of one more round."""
        self._rounds += 1
        folder = self._folder / f"{loop}.{self._rounds}"
        folder.mkdir()  # not its parents: if they are deleted, the step has ended
        return folder

    def run_part(
        self, part: LoopPart, folder: Path, time: int, iteration: Iterations, published: Files, hydrates: bool
    ) -> StageReport:
        """Run a part in a round."""
        path = folder / f"{part.name}.json"
        self._describe(time, iteration, published, hydrates).write(path)
        report = self._run(part.place, path)
        self._add_report(report, time)
        return report

    def _describe(self, time: int, iteration: Iterations, published: Files, hydrates: bool) -> StepDescription:
        outer, left = self._outer, self._outer.bytes_left
        return replace(
            outer,
            lower=time,
            upper=time + 1,
            limit=time + 1,
            hydrates=hydrates,
            parts={},
            manifests={a: replace(m, upper=time, since=time) for a, m in self._manifests.items()},
            published=published,
            bytes_left=None if left is None else max(left - sum(b.bytes for b in self._own.values()), 0),
            iteration=iteration,
        )

    def _add_report(self, report: StageReport, time: int) -> None:
        """Add a round's batches to what the next round reads. Deletes merged batches that the step itself wrote."""
        for arrangement, refs in report.written.items():
            manifest = self._manifests[arrangement]
            self._manifests[arrangement] = replace(manifest, batches=(*manifest.batches, *refs))
            self._own.update({b.file: b for b in refs})
        for merged in report.merges:
            name = merged.merge.arrangement
            self._manifests[name] = apply(replace(self._manifests[name], since=time), merged.merge, merged.result)
            if merged.result is not None:
                self._own[merged.result.file] = merged.result
            for batch in merged.merge.batches:
                if self._own.pop(batch.file, None) is not None:
                    (self._outer.store / batch.file).unlink(missing_ok=True)

    @property
    def written(self) -> dict[ArrangementId, tuple[BatchRef, ...]]:
        """The batches that the step adds, without those that replace older batches."""
        replaced = {m.result.file for m in self.merges if m.result is not None}
        return {
            name: tuple(b for b in manifest.batches if b.file in self._own and b.file not in replaced)
            for name, manifest in self._manifests.items()
        }

    @property
    def merges(self) -> tuple[Merged, ...]:
        """One merge per arrangement that has lost older batches, whatever happened in between."""
        made = []
        for name, manifest in self._manifests.items():
            found = _replaced(self._outer.manifests[name], manifest)
            if found:
                own = next((b for b in manifest.batches if b.file in self._own), None)
                made.append(Merged(Merge(name, found, manifest.since), own))
        return tuple(made)


def _replaced(before: Manifest, after: Manifest) -> tuple[BatchRef, ...]:
    return tuple(b for b in before.batches if b.file not in after.files)


class _LoopRounds:
    """The rounds of a loop at one time, and in it those of the loops inside it.

    An inner loop runs, in each iteration of the outer one, until nothing of that iteration is pending in it. Rows that
    enter it in a later iteration wait for it: the inner loop might not end over half of what belongs to that iteration.
    """

    def __init__(self, loop: Loop, time: int, of: Fixpoint) -> None:
        self._loop, self._time, self._of = loop, time, of
        self._inner = {part.name: _LoopRounds(part, time, of) for part in loop.parts if isinstance(part, Loop)}
        self._pending: dict[Iterations, Files] = {}
        self._spent: list[str] = []

    def settle(self, around: Iterations, entering: Files, hydrates: bool) -> Published:
        """Run all rounds in one iteration of the loops around, and return what leaves the loop.

        `entering`: the inputs of a loop that is in no other.
        """
        left: Published = {}
        first = (*around, 0)
        if entering or hydrates or self._falls_due(self._loop, first):
            self._round(first, {**entering, **self._take_pending(first)}, hydrates, left)
        while (iteration := self._next(around)) is not None:
            if iteration[-1] > self._loop.most_iterations:
                raise EndlessRecursion(
                    f"a recursion still changes after {self._loop.most_iterations} iterations at time {self._time}: "
                    "limit it with RETURN AT RECURSION LIMIT or ERROR AT RECURSION LIMIT, or make its rows distinct"
                )
            self._round(iteration, self._take_pending(iteration), False, left)
        return left

    def read_files(self) -> Iterator[str]:
        """Yield the files that rounds have read."""
        yield from self._spent
        for inner in self._inner.values():
            yield from inner.read_files()

    def _next(self, around: Iterations) -> Iterations | None:
        """The lowest pending iteration."""
        depth = len(around) + 1
        return min((found[:depth] for found in self._iterations() if found[: depth - 1] == around), default=None)

    def _iterations(self) -> Iterator[Iterations]:
        yield from self._pending
        for inner in self._inner.values():
            yield from inner._iterations()

    def _take_pending(self, iteration: Iterations) -> Files:
        """The files that wait for an iteration, which reads them now."""
        read = self._pending.pop(iteration, {})
        self._spent += [file for files in read.values() for file in files]
        return read

    def _round(self, iteration: Iterations, reads: Files, hydrates: bool, left: Published) -> None:
        """Run one round over its new inputs. Adds what leaves the loop to `left`."""
        folder = self._of.new_round(self._loop.name)
        published = dict(reads)
        for part in self._loop.parts:
            if isinstance(part, Loop):
                found = self._inner[part.name].settle(iteration, {}, hydrates)
                published |= {name: files.files for name, files in found.items()}
            elif hydrates or not part.reads.isdisjoint(published) or self._falls_due(part, iteration):
                report = self._of.run_part(part, folder, self._time, iteration, published, hydrates)
                made = {name: _in_folder(folder, files) for name, files in report.published.items() if files.rows}
                _add(left, {name: files for name, files in made.items() if name in self._loop.leaving})
                published |= {name: files.files for name, files in made.items() if name not in self._loop.leaving}
                self._add_pending(folder, report.fed_back)

    def _falls_due(self, part: LoopPart | Loop, iteration: Iterations) -> bool:
        """Whether an update falls due in a part in this round: in the first one of the time."""
        return not any(iteration) and self._of.has_due(part, self._time)

    def _add_pending(self, folder: Path, fed_back: Iterable[FeedbackFile]) -> None:
        """Note what a part wrote for later rounds, or for those of an inner loop."""
        for each in fed_back:
            of = next((i for i in self._inner.values() if each.name in i._loop.entering), self)
            for iteration in each.iterations:
                files = of._pending.get(iteration, {})
                file = str(folder / each.file)
                of._pending[iteration] = {**files, each.name: (*files.get(each.name, ()), file)}


def _in_folder(folder: Path, found: PublishedFiles) -> PublishedFiles:
    return replace(found, files=tuple(str(folder / file) for file in found.files))


def _add(to: Published, more: Published) -> None:
    for name, files in more.items():
        to[name] = to[name].plus(files) if name in to else files
