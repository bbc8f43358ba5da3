"""A step's description: what the tasks of one Spark job read, and what they report.

    <dataflow>/<constant>.arrow                                 written when the dataflow is built
    <dataflow>/steps/<step>/<fragment>.json                     written by the driver before the job
                            <stage>.<share>.<task attempt>.report   by a task that consumed all its input
                            <name>.<task attempt>.arrow         published updates
                            <loop>.<round>/                     the same again for every round of a loop

A prepared DataFrame is run again and again, so it cannot hold the description itself: tasks find the path of theirs in
a local property of the job. So a task of a cancelled job that lives on never reads, or reports to, another step.
Every attempt writes files of its own; of each task the driver believes one attempt that reported all its stages. A step
worker is told the path, runs one attempt, and answers with its report.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_persist import Part
from tidemark_protocol.ids import GlobalId
from tidemark_replica.arrangement.batches.batch import BatchRef, batches_from_json
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.render.stepped_dataflow import Merged
from tidemark_replica.render.task.timing import OperatorTimes

PROPERTY = "tidemark.step"


@dataclass(frozen=True)
class StepDescription:
    """What a job of the step over [lower, upper) reads. `published` has earlier fragments' files."""

    step: StepId
    lower: int
    upper: int
    limit: int
    """Updates from here on are left out: `upper`, or the dataflow's `until`."""
    hydrates: bool
    store: Path
    parts: Mapping[GlobalId, tuple[Part, ...]] = field(default_factory=dict)
    manifests: Mapping[ArrangementId, Manifest] = field(default_factory=dict)
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bytes_left: int | None = None
    busy: frozenset[str] = frozenset()
    """Batches that are being merged beside the step; it leaves them as they are."""
    iteration: int | None = None
    """In a round of a loop: the iteration under way; none in the first, which only what enters from outside begins."""

    def write(self, path: Path) -> None:
        """In one go: nobody is told of it before it is there."""
        value = {
            "step": self.step,
            "lower": self.lower,
            "upper": self.upper,
            "limit": self.limit,
            "hydrates": self.hydrates,
            "store": str(self.store),
            "parts": {id: [p.to_json() for p in parts] for id, parts in self.parts.items()},
            "manifests": [m.to_json() for m in self.manifests.values()],
            "published": {name: list(files) for name, files in self.published.items()},
            "bytes_left": self.bytes_left,
            "busy": list(self.busy),
            "iteration": self.iteration,
        }
        path.write_bytes(json.dumps(value).encode())

    @staticmethod
    def read(path: Path) -> StepDescription:
        value = json.loads(path.read_bytes())
        manifests = [Manifest.from_json(m) for m in value["manifests"]]
        return StepDescription(
            StepId(value["step"]),
            value["lower"],
            value["upper"],
            value["limit"],
            value["hydrates"],
            Path(value["store"]),
            {GlobalId(id): tuple(map(Part.from_json, parts)) for id, parts in value["parts"].items()},
            {m.arrangement: m for m in manifests},
            {name: tuple(files) for name, files in value["published"].items()},
            value["bytes_left"],
            frozenset(value["busy"]),
            value["iteration"],
        )


@dataclass(frozen=True)
class PublishedFiles:
    """Files of updates (absolute, or beside the description), and, where that was asked for, the times in them."""

    files: tuple[str, ...]
    rows: int
    times: tuple[int, ...] = ()

    def and_(self, other: PublishedFiles) -> PublishedFiles:
        """Both, as one."""
        times = tuple(sorted({*self.times, *other.times}))
        return PublishedFiles(self.files + other.files, self.rows + other.rows, times)


@dataclass(frozen=True)
class FeedbackFile:
    """What a round of a loop keeps for later iterations of a binding: a file, and the iterations that it is for."""

    name: str
    file: str
    iterations: tuple[int, ...]


@dataclass(frozen=True)
class StageReport:
    """What one attempt of a stage wrote, all of it."""

    attempt: int
    written: Mapping[ArrangementId, tuple[BatchRef, ...]]
    merges: tuple[Merged, ...]
    published: Mapping[str, PublishedFiles]
    fed_back: tuple[FeedbackFile, ...] = ()
    spent: OperatorTimes = OperatorTimes()
    cold_reads: int = 0
    """How many batches were opened for it: those that its process had not opened, or not written, before."""

    def write(self, folder: Path, stage: str, share: int = 0) -> None:
        value = {
            "attempt": self.attempt,
            "written": dict(self.written),
            "merges": [_merge_to_json(m) for m in self.merges],
            "published": {name: [p.files, p.rows, p.times] for name, p in self.published.items()},
            "fed_back": [[f.name, f.file, f.iterations] for f in self.fed_back],
            "spent": self.spent.to_json(),
            "cold_reads": self.cold_reads,
        }
        path = folder / report_name(stage, share, self.attempt)
        draft = f"{path}.tmp"  # an attempt is cut short at any time, and others look for reports meanwhile
        Path(draft).write_bytes(json.dumps(value).encode())
        os.replace(draft, path)

    @staticmethod
    def read(path: Path) -> StageReport:
        value = json.loads(path.read_bytes())
        written = {ArrangementId(a): batches_from_json(refs) for a, refs in value["written"].items()}
        merges = tuple(map(_merge_from_json, value["merges"]))
        published = {
            name: PublishedFiles(tuple(f), rows, tuple(t)) for name, (f, rows, t) in value["published"].items()
        }
        fed_back = tuple(FeedbackFile(name, file, tuple(i)) for name, file, i in value["fed_back"])
        spent, cold_reads = OperatorTimes.from_json(value["spent"]), value["cold_reads"]
        return StageReport(value["attempt"], written, merges, published, fed_back, spent, cold_reads)


def report_name(stage: str, share: int, attempt: int | str) -> str:
    """Where an attempt of a stage's task reports; a pattern for that, if `attempt` is one."""
    return f"{stage}.{share}.{attempt}.report"


def _merge_to_json(merged: Merged) -> dict[str, Any]:
    merge = merged.merge
    return {"of": merge.arrangement, "since": merge.since, "batches": merge.batches, "result": merged.result}


def _merge_from_json(value: dict[str, Any]) -> Merged:
    merge = Merge(ArrangementId(value["of"]), batches_from_json(value["batches"]), value["since"])
    return Merged(merge, None if value["result"] is None else BatchRef(*value["result"]))
