"""One installed dataflow, from CreateDataflow to its end, as a plain object without threads or Spark.

    created ──► suspended ──(all exports scheduled)──► running ──(all exports dropped)──► dropped
       └──────► refused: cannot be rendered; stays at its as_of and reports the reason
    outdated: another program changed a table that it reads or writes; it has ended, and a new client creates it anew,
              at once or after a pause

`processed` is the frontier up to which input has become output: the as_of until the dataflow is hydrated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.responses import Frontiers
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.dataflow.export_state import ExportState
from tidemark_replica.dataflow.frontier_report import Observed


@dataclass(frozen=True)
class Outdated:
    """Another program changed a table, as `change` says. `is_certain`: False where the replica cannot tell whether a
    program did. `attempts`: how often in a row that has happened, where the dataflow pauses before the replica computes
    it again; else 0. `pause`: the sentence on that pause."""

    change: str
    is_certain: bool
    attempts: int = 0
    pause: str = ""

    @property
    def message(self) -> str:
        """The change, and the pause if there is one, as text."""
        return f"{self.change}. {self.pause}" if self.pause else self.change


class InstalledDataflow:
    """The state of a dataflow. `imports` are the dataflows that export the indexes it reads."""

    def __init__(
        self,
        description: DataflowDescription,
        imports: Mapping[GlobalId, InstalledDataflow],
        awake: dict[InstalledDataflow, None] | None = None,
    ) -> None:
        """The dataflow adds itself to `awake` whenever maintenance must visit it."""
        self.description = description
        self.imports = imports
        self.digest = description.plan_digest
        self.processed = Frontier.at(description.as_of)
        self.hydrated = False
        self._began_at = description.as_of
        self.refusal: str | None = None
        self.outdated: Outdated | None = None
        as_of = Frontier.at(description.as_of)
        self.exports = {id: ExportState(id, as_of) for id in description.export_ids}
        self.importers: set[InstalledDataflow] = set()
        self._awake = {} if awake is None else awake
        self.pending_error_reads = 0
        """Reads of an index's errors that run on a pool. Their Status must come before the report that the dataflow has
        ended."""
        self.wake()

    def wake(self) -> None:
        """Makes the next maintenance visit this dataflow."""
        self._awake[self] = None

    def progress(self, reached: Frontier) -> None:
        """Records that a step has reached `reached`, and wakes the dataflows that read it or that it reads."""
        self.processed, self.hydrated = reached, True
        for dataflow in (self, *self.importers, *self.imports.values()):
            dataflow.wake()

    def begin_anew(self, as_of: Frontier) -> None:
        """Records that the exports are computed anew from `as_of`, before which nothing of them changes."""
        self.processed, self.hydrated = as_of, False
        self._began_at = Time(as_of.encode())

    @property
    def as_of(self) -> Frontier:
        return Frontier.at(self.description.as_of)

    @property
    def scheduled(self) -> bool:
        return all(e.scheduled for e in self.exports.values())

    @property
    def dropped(self) -> bool:
        return all(e.dropped for e in self.exports.values())

    @property
    def reads_from(self) -> Frontier:
        """The earliest time that it still reads of its inputs: the as_of before hydration, then the time before the
        next step."""
        if not self.hydrated:
            return Frontier.at(self._began_at)
        return self.processed if self.processed.time is None else Frontier.at(self.processed.time - 1)

    @property
    def sinces(self) -> dict[GlobalId, Frontier]:
        """The since of each export; empty if dropped."""
        return {id: export.since for id, export in self.exports.items()}

    @property
    def terms(self) -> dict[GlobalId, WriterTerm]:
        """The writer terms of the exports that may be written."""
        return {id: export.term for id, export in self.exports.items() if export.term is not None}

    def reuse_for(self, wanted: DataflowDescription) -> None:
        """Continues the same computation for a new client, which knows it from a later as_of on."""
        as_of = Frontier.at(wanted.as_of)
        self.description = wanted
        for export in self.exports.values():
            export.compact(as_of)
            export.report.restart(as_of)

    def reports(self, write: dict[GlobalId, Frontier]) -> Iterator[Frontiers]:
        """The reports that are due, given each export's write frontier."""
        for id, export in self.exports.items():
            if export.dropped:
                continue
            output = min(write[id], self.processed) if export.term is not None else self.processed
            observed = Observed(write[id], self.processed, output)
            if message := export.report.advance(observed):
                yield message
