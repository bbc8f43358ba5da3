"""The destination of a view that is published as an ordinary Delta table, which an Iceberg table may follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from threading import Event

from tidemark_persist import ShardId
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_replica.shards.published_notes import Note, write_note
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import Reached, SinkViewInError
from tidemark_replica.sinks.published.changed_files import FILE_BYTES
from tidemark_replica.sinks.published.iceberg_follower import IcebergFollower
from tidemark_replica.sinks.published.lost_files import FileLook
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import TableOptions, open_table
from tidemark_replica.storage.source_secrets import SourceSecrets

EMPTIED = "the view has rows in error: the table has no rows until they are corrected (condition Erroring names one)"


@dataclass(frozen=True)
class TableDestination:
    """`id`: the export's."""

    id: GlobalId
    shard: ShardMetadata
    view: PublishedView
    handles: ShardHandles
    secrets: SourceSecrets
    kind: str = "published"
    interrupted: Event = field(default_factory=Event)
    noted: Event = field(default_factory=Event)
    look: FileLook = field(default_factory=FileLook)

    @cached_property
    def follower(self) -> IcebergFollower:
        """The mirror of the Delta table in a catalogue."""
        return IcebergFollower(self.view.iceberg, self.secrets)

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
            look=self.look,
        )
        contents = ShardId(reader.contents_id)
        try:
            published = publication.publish(time)
        except SinkViewInError:  # the table stays as it is, and others may have changed the Iceberg table
            self.follower.follow(publication.options, contents)
            raise
        followed = self.follower.follow(publication.options, contents)
        fields = {"rows": str(published.rows), "bytes": str(published.bytes)}
        if followed.time is not None:
            fields["icebergTime"] = str(followed.time)
        if published.is_in_error:
            fields |= {"problem": EMPTIED, "reason": "ViewInError"}
        elif followed.problem:
            fields |= {"problem": f"Iceberg: {followed.problem}", "reason": followed.reason}
        again = followed.again_seconds
        return Reached(published.time, published.checked, fields, published.anew_because, again)

    def progress_time(self, contents: str) -> Time | None:
        table = open_table(self._options(WriterTerm(0)))
        return None if table is None else table.time_of(ShardId(contents))

    def clean(self) -> None:
        self.noted.clear()  # first: the deletion of an earlier table here may have taken the note, and this may fail
        options = self._options(WriterTerm(0))
        table = open_table(options)
        if table is not None:
            table.remove_unused()
            self.follower.clean(options)

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
