"""Members without a dataflow: rows of a shard's file that are to be arranged."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path

import pyarrow as pa

from tests.bounds import BOUND
from tidemark_persist import Part, Time, write_staged
from tidemark_protocol.ids import GlobalId
from tidemark_replica.arrangement.layout import Layout
from tidemark_replica.arrangement.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.render.description import Description, Report
from tidemark_replica.render.pipeline import ArrangeKernel, Drain, Source
from tidemark_replica.step_worker.pool import StepWorkers
from tidemark_replica.step_worker.tickets import SentTree, StepWorkerError, Ticket

T, A = GlobalId("t"), ArrangementId("a")
TREE = Drain(ArrangeKernel(A, Source(T, ("c",), (pa.int64(),))))
ROWS = 3


class Rows:
    """One file of rows; every member is a step of its own over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._steps = folder, 0
        (folder / "store" / A).mkdir(parents=True)
        (folder / "t").mkdir()
        times, ones = pa.array([5] * ROWS), pa.array([1] * ROWS)
        staged = write_staged(
            str(folder / "t"), pa.table({"c": pa.array(range(ROWS)), "__time": times, "__diff": ones})
        )
        assert staged is not None
        self._part = Part(str(folder / "t"), staged.path, Time(1), Time(9), staged.rows, staged.size)

    def ticket(self, *, key: str = "tree", tree: bytes | None = None) -> Ticket:
        """A step of its own."""
        self._steps += 1
        description = self._description(self._steps)
        return Ticket(SentTree("stage", key, tree or pickle.dumps(TREE)), description)

    def _description(self, number: int) -> Path:
        home = self.folder / f"s{number}"
        home.mkdir()
        manifest = Manifest.empty(A, Layout.of_rows((pa.int64(),), (0,)), 1)
        step, store = StepId(home.name), self.folder / "store"
        described = Description(step, 1, 9, 9, False, store, {T: (self._part,)}, {A: manifest})
        described.write(home / "d.json")
        return home / "d.json"


def report(ticket: Ticket) -> Report:
    """What the member said that it wrote, once it has ended."""
    return ticket.wait()


def written(ticket: Ticket) -> int:
    """How many rows the member has arranged."""
    return sum(batch.rows for batch in report(ticket).written[A])


def all_of(workers: StepWorkers, tickets: list[Ticket]) -> list[type[StepWorkerError] | None]:
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
