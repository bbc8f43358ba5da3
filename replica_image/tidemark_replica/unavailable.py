"""What this build has no machinery for yet: refused with that reason, in the way the protocol has for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidemark_protocol.commands import Peek
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.responses import IngestionStatus, PeekRows, ShardFrontiers
from tidemark_protocol.storage import IngestionDescription, SourceSpec, SourceTable
from tidemark_replica.dataflows import Driver
from tidemark_replica.errors import DataflowRefused, SourceNotReadable
from tidemark_replica.installed import InstalledDataflow
from tidemark_replica.jobs import Job, Outcome
from tidemark_replica.peeks import Readable
from tidemark_replica.storage_state import IngestionClock


def no_driver(dataflow: InstalledDataflow) -> Driver:
    raise DataflowRefused("this build renders no dataflows")


class NoTargets:
    def readable(self, peek: Peek) -> Readable | str:
        return f"{peek.target.id} is not here"

    def read(self, peek: Peek, max_result_bytes: int, done: Callable[[Outcome[PeekRows]], None]) -> Job:
        raise AssertionError("nothing is readable")


class NoIngestion:
    def __init__(self) -> None:
        self._news: list[IngestionStatus] = []

    def run(self, description: IngestionDescription, term: WriterTerm, clock: IngestionClock) -> None:
        self._news.append(IngestionStatus(description.id, "failed", "this build ingests no sources"))

    def drop(self, id: GlobalId) -> None:
        self._news = [n for n in self._news if n.id != id]

    def poll(self) -> Iterable[ShardFrontiers | IngestionStatus]:
        news, self._news = self._news, []
        return news

    def inspect(self, source: SourceSpec) -> tuple[SourceTable, ...]:
        raise SourceNotReadable("this build ingests no sources")

    def shutdown(self) -> None:
        self._news = []
