"""The state of one export: what the controller has commanded, and what has been reported to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_replica.dataflow.frontier_report import FrontierReport


@dataclass
class ExportState:
    """`since` starts at the as_of and follows AllowCompaction; the empty frontier means dropped."""

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
        """Takes the term, unless a newer one was given before."""
        self.term = term if self.term is None else max(self.term, term)
