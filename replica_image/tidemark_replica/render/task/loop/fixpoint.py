"""The order of a loop's rounds: one time after another, and at each time from the lowest iteration up.

    time 5     round: loop inputs at 5                     ──> fed back for iterations 1, 4
               round: iteration 1                          ──> for 2
               round: iteration 2                          ──> for 3, 4
               ...                                             until nothing is pending
    time 9     round: loop inputs at 9   ...

An iteration feeds back to later iterations only, so the lowest pending one is complete when it is taken. A round is a
small step, [t, t + 1): its operators read the pinned arrangements and what earlier rounds wrote. Nothing is committed
before the step is, so a step that is cut short leaves only files to be swept.

The caller runs a round's parts: as Spark jobs, or in its own task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import Merge, apply
from tidemark_replica.render.errors import EndlessRecursion
from tidemark_replica.render.plan.pipeline import Loop
from tidemark_replica.render.stepped_dataflow import Merged
from tidemark_replica.render.task.description import FeedbackFile, PublishedFiles, StageReport, StepDescription

RunPart = Callable[[int, Path], StageReport]
"""Runs a part of the body, by its position, with the description at a path."""

Pending = dict[int, dict[str, tuple[str, ...]]]
"""Files of fed back rows by iteration and binding."""


class Fixpoint:
    """One loop in one run of a step. Afterwards it has what was written, and what leaves the loop."""

    def __init__(self, loop: Loop, outer: StepDescription, folder: Path, run: RunPart) -> None:
        self._loop, self._folder, self._run = loop, folder.absolute(), run
        self._outer = replace(outer, is_only_step=False)  # rounds read what earlier ones keep
        self._manifests = {a: outer.manifests[a] for a in loop.arrangements}
        self._own: dict[str, BatchRef] = {}
        self._rounds = 0
        self.leaving: dict[str, PublishedFiles] = {}

    def settle(self, entering: Mapping[str, PublishedFiles]) -> None:
        """Run the rounds of every time with loop inputs, and of the as_of. Raises EndlessRecursion."""
        times = {time for published in entering.values() for time in published.times}
        if self._outer.hydrates:
            times.add(self._outer.lower)
        for time in sorted(times):
            self._settle(time, {name: p.files for name, p in entering.items() if time in p.times})

    def _settle(self, time: int, entering: Mapping[str, tuple[str, ...]]) -> None:
        hydrates = self._outer.hydrates and time == self._outer.lower
        pending: Pending = {}
        _add_pending(pending, self._round(time, None, entering, hydrates))
        spent: set[str] = set()
        while pending:
            iteration = min(pending)
            if iteration > self._loop.most_iterations:
                raise EndlessRecursion(
                    f"a recursion still changes after {self._loop.most_iterations} iterations at time {time}: limit it "
                    "with RETURN AT RECURSION LIMIT or ERROR AT RECURSION LIMIT, or make its rows distinct"
                )
            read = pending.pop(iteration)
            _add_pending(pending, self._round(time, iteration, read, False))
            spent.update(file for files in read.values() for file in files)
        for file in spent:
            Path(file).unlink(missing_ok=True)

    def _round(
        self, time: int, iteration: int | None, reads: Mapping[str, tuple[str, ...]], hydrates: bool
    ) -> list[FeedbackFile]:
        """Run one round over its new inputs. Returns what it feeds back."""
        self._rounds += 1
        folder = self._folder / f"{self._loop.name}.{self._rounds}"
        folder.mkdir()  # not its parents: if they are deleted, the step has ended
        published, fed_back = dict(reads), []
        for at, part in enumerate(self._loop.parts):
            if not hydrates and part.reads.isdisjoint(published):
                continue
            path = folder / f"{part.name}.json"
            self._describe(time, iteration, published, hydrates).write(path)
            report = self._run(at, path)
            self._add_report(report, time)
            for name, found in report.published.items():
                files = tuple(str(folder / file) for file in found.files)
                if found.rows and name in self._loop.leaving:
                    before = self.leaving.get(name, PublishedFiles((), 0))
                    self.leaving[name] = PublishedFiles(before.files + files, before.rows + found.rows)
                elif found.rows:
                    published[name] = files
            fed_back += [replace(f, file=str(folder / f.file)) for f in report.fed_back]
        return fed_back

    def _describe(
        self, time: int, iteration: int | None, published: Mapping[str, tuple[str, ...]], hydrates: bool
    ) -> StepDescription:
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


def _add_pending(pending: Pending, fed_back: list[FeedbackFile]) -> None:
    for each in fed_back:
        for iteration in each.iterations:
            files = pending.setdefault(iteration, {})
            files[each.name] = (*files.get(each.name, ()), each.file)
