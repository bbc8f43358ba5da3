"""The destination of a view that is published as an ordinary Delta table."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event

from tidemark_persist import ShardId
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_replica.shards.published_notes import Note, write_note
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import Reached
from tidemark_replica.sinks.published.changed_files import FILE_BYTES
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import TableOptions, open_table

EMPTIED = "the view has rows in error: the table has no rows until they are corrected (condition Erroring names one)"


@dataclass(frozen=True)
class TableDestination:
    """`id`: the export's."""

    id: GlobalId
    shard: ShardMetadata
    view: PublishedView
    handles: ShardHandles
    kind: str = "published"
    interrupted: Event = field(default_factory=Event)
    noted: Event = field(default_factory=Event)

    def publish(self, time: Time, term: WriterTerm) -> Reached:
        if self.view.chosen and not self.noted.is_set():
            write_note(self.shard.location, Note(self.view.location, self.view.owner))
            self.noted.set()
        reader = self.handles.reader(self.shard.location, self.shard.shard_id)
        publication = TablePublication(
            reader,
            self._options(term),
            self.view.file_bytes or FILE_BYTES,
            interrupted=self.interrupted,
            empty_on_error=self.view.empty_on_error,
        )
        published = publication.publish(time)
        fields = {"rows": str(published.rows), "bytes": str(published.bytes)}
        if published.is_in_error:
            fields |= {"problem": EMPTIED, "reason": "ViewInError"}
        return Reached(published.time, published.checked, fields, published.anew_because)

    def progress_time(self, contents: str) -> Time | None:
        table = open_table(self._options(WriterTerm(0)))
        return None if table is None else table.time_of(ShardId(contents))

    def clean(self) -> None:
        self.noted.clear()  # first: the deletion of an earlier table here may have taken the note, and this may fail
        table = open_table(self._options(WriterTerm(0)))
        if table is not None:
            table.remove_unused()

    def interrupt(self) -> None:
        """Ends a publication that runs, at its next batch of rows, unless it is at its commit."""
        self.interrupted.set()

    def close(self) -> None:
        """Nothing is kept open."""

    def _options(self, term: WriterTerm) -> TableOptions:
        uid = self.id.partition("/")[0]
        view = self.view
        features = view.change_data_feed, view.partition_by
        return TableOptions(view.location, view.owner, view.retention_hours, uid, term, *features)
