"""Members without a dataflow: rows of a shard's file that are to be arranged."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tests.waiting import BOUND
from tidemark_persist import FilePart, Time, write_staged
from tidemark_protocol.ids import GlobalId
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.render.plan.pipeline import ArrangeKernel, Drain, Source
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.render.step_worker.work_ticket import PickledStage, StepWorkerError, WorkTicket
from tidemark_replica.render.task.description import StageReport, StepDescription

T, A = GlobalId("t"), ArrangementId("a")
TREE = Drain(ArrangeKernel(A, Source(T, ("c",), (pa.int64(),))))
ROWS = 3


class Rows:
    """One file of rows; every member is a step of its own over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._steps = folder, 0
        (folder / "store" / A).mkdir(parents=True)
        self._part = _part(folder / "t", range(ROWS))

    def ticket(self, *, key: str = "tree", tree: bytes | None = None, of: Sequence[object] = ()) -> WorkTicket:
        """A step of its own; `of`: over other values."""
        self._steps += 1
        part = _part(self.folder / f"t{self._steps}", of) if of else self._part
        description = self._description(self._steps, part)
        return WorkTicket(PickledStage("stage", key, tree or pickle.dumps(TREE)), description)

    def _description(self, number: int, part: FilePart) -> Path:
        home = self.folder / f"s{number}"
        home.mkdir()
        manifest = Manifest.empty(A, Layout.of_rows((pa.int64(),), (0,)), 1)
        step, store = StepId(home.name), self.folder / "store"
        described = StepDescription(step, 1, 9, 9, False, store, {T: (part,)}, {A: manifest})
        described.write(home / "d.json")
        return home / "d.json"


def _part(folder: Path, values: Sequence[object]) -> FilePart:
    folder.mkdir()
    times, ones = pa.array([5] * len(values)), pa.array([1] * len(values))
    staged = write_staged(str(folder), pa.table({"c": pa.array(values), "__time": times, "__diff": ones}))
    assert staged is not None
    return FilePart(str(folder), staged.path, Time(1), Time(9), staged.rows, staged.size)


def report(ticket: WorkTicket) -> StageReport:
    """The report of the member about its files, once it has ended."""
    return ticket.wait()


def written(ticket: WorkTicket) -> int:
    """The number of rows that the member has arranged."""
    return sum(batch.rows for batch in report(ticket).written[A])


def all_of(workers: StepWorkers, tickets: list[WorkTicket]) -> list[type[StepWorkerError] | None]:
    """Run them at once, a thread each; how they ended."""
    ended: dict[int, type[StepWorkerError] | None] = {}

    def run(at: int) -> None:
        try:
            workers.run(tickets[at])
            ended[at] = None
        except StepWorkerError as error:
            ended[at] = type(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(tickets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    return [ended[at] for at in range(len(tickets))]


def children() -> set[int]:
    """Step workers of this process that live."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    found = {int(child) for task in tasks for child in task.read_text().split()}
    return {pid for pid in found if "step_worker" in Path(f"/proc/{pid}/cmdline").read_text()}


def lives(pid: int) -> bool:
    """Whether it runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
