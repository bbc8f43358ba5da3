"""The description of a step for its tasks, and the reports of tasks.

    <dataflow>/<constant>.arrow                                 written when the dataflow is built
    <dataflow>/steps/<step>/<fragment>.json                     written by the driver before the job
                            <stage>.<share>.<task attempt>.report   by a task that consumed all its input
                            <name>.<task attempt>.arrow         published updates
                            <loop>.<round>/                     the same for every round of a loop

A prepared DataFrame runs at every step, so it cannot hold the description: tasks find its path in a local property of
the job. A task of a cancelled job that still runs therefore never reads, or reports to, another step. Every attempt
writes its own files. The driver accepts one attempt of each task, which reported all its stages. A step worker gets the
path, runs one attempt, and sends its report with the answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_persist import FilePart
from tidemark_protocol.ids import GlobalId
from tidemark_replica.arrangement.batches.batch import BatchRef, batches_from_json
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import Merge
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.render.stepped_dataflow import Merged
from tidemark_replica.render.task.timing import OperatorTimes

PROPERTY = "tidemark.step"

Iterations = tuple[int, ...]
"""An iteration of each loop around a row, the outermost first."""


@dataclass(frozen=True)
class StepDescription:
    """The inputs of a job of the step over [lower, upper). `published`: the files of earlier fragments."""

    step: StepId
    lower: int
    upper: int
    limit: int
    """The end of the updates that are computed: `upper`, or the dataflow's until."""
    hydrates: bool
    store: Path
    parts: Mapping[GlobalId, tuple[FilePart, ...]] = field(default_factory=dict)
    manifests: Mapping[ArrangementId, Manifest] = field(default_factory=dict)
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bytes_left: int | None = None
    busy: frozenset[str] = frozenset()
    """Files of batches in a background merge; the step does not merge them."""
    iteration: Iterations = ()
    """The iteration of a loop's round, after those of the loops around it; none outside of loops."""
    is_only_step: bool = False
    """Whether no later step, and no later round of a loop, reads what operators keep."""
    inputs_add_only: bool = False
    """Whether the step has one time, the as_of, and the inputs are append-only tables."""

    def write(self, path: Path) -> None:
        """Write the description at once. No task knows the path before the file is complete."""
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
            "iteration": list(self.iteration),
            "is_only_step": self.is_only_step,
            "inputs_add_only": self.inputs_add_only,
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
            {GlobalId(id): tuple(map(FilePart.from_json, parts)) for id, parts in value["parts"].items()},
            {m.arrangement: m for m in manifests},
            {name: tuple(files) for name, files in value["published"].items()},
            value["bytes_left"],
            frozenset(value["busy"]),
            tuple(value["iteration"]),
            value["is_only_step"],
            value["inputs_add_only"],
        )


@dataclass(frozen=True)
class PublishedFiles:
    """Files of updates (absolute, or beside the description), their rows, and the times in them if requested."""

    files: tuple[str, ...]
    rows: int
    times: tuple[int, ...] = ()

    def plus(self, other: PublishedFiles) -> PublishedFiles:
        """The files of both."""
        times = tuple(sorted({*self.times, *other.times}))
        return PublishedFiles(self.files + other.files, self.rows + other.rows, times)


@dataclass(frozen=True)
class FeedbackFile:
    """A file of rows that a round of a loop feeds back to a binding, or that enter an inner loop, and the iterations
    of its rows.
    """

    name: str
    file: str
    iterations: tuple[Iterations, ...]


@dataclass(frozen=True)
class StageReport:
    """The files and counts that one attempt of a stage wrote."""

    attempt: int
    written: Mapping[ArrangementId, tuple[BatchRef, ...]]
    merges: tuple[Merged, ...]
    published: Mapping[str, PublishedFiles]
    fed_back: tuple[FeedbackFile, ...] = ()
    spent: OperatorTimes = OperatorTimes()
    cold_reads: int = 0
    """The number of batches that the attempt opened: its process had neither opened nor written them before."""

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
        fed_back = tuple(FeedbackFile(name, file, tuple(map(tuple, i))) for name, file, i in value["fed_back"])
        spent, cold_reads = OperatorTimes.from_json(value["spent"]), value["cold_reads"]
        return StageReport(value["attempt"], written, merges, published, fed_back, spent, cold_reads)


def report_name(stage: str, share: int, attempt: int | str) -> str:
    """The file name of an attempt's report; a glob pattern if `attempt` is one."""
    return f"{stage}.{share}.{attempt}.report"


def _merge_to_json(merged: Merged) -> dict[str, Any]:
    merge = merged.merge
    return {"of": merge.arrangement, "since": merge.since, "batches": merge.batches, "result": merged.result}


def _merge_from_json(value: dict[str, Any]) -> Merged:
    merge = Merge(ArrangementId(value["of"]), batches_from_json(value["batches"]), value["since"])
    return Merged(merge, None if value["result"] is None else BatchRef(*value["result"]))
