"""One export of a dataflow: what the controller has asked of it so far, and what it has been told."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_replica.dataflow.frontier_report import FrontierReport


@dataclass
class ExportState:
    """`since` follows AllowCompaction and starts at the as_of; empty means dropped."""

    id: GlobalId
    since: Frontier
    report: FrontierReport = field(init=False)
    scheduled: bool = False
    term: WriterTerm | None = None

    def __post_init__(self) -> None:
        self.report = FrontierReport(self.id, self.since)

    @property
    def dropped(self) -> bool:
        return self.since.is_empty

    def compact(self, frontier: Frontier) -> None:
        self.since = max(self.since, frontier)

    def allow_writes(self, term: WriterTerm) -> None:
        """Irreversible; an older term than one that was given already changes nothing."""
        self.term = term if self.term is None else max(self.term, term)
