"""The records of a topic that a table with further columns reads again (`successors.py`).

    tick    orders                orders.2
    T1      takes new records     a piece of the records that orders has read is staged, from its first one on;
                                  nothing is bound, and the upper stands still
    T2      takes new records     the next piece
    T3      takes none            it is where orders is: one binding names all staged files
    T4      both take the same records, which are read once

A topic forgets, so it is proved that no record is missing: the table before it counts those that it reads from its
first one on (`positions.py`), and records are only removed, never added before others. Rows by key have to be those
of that table, too: of a key in two partitions the record that is read last counts.

Compaction leaves the newest record of each key, which is all that envelope `upsert` needs. So there records may be
missing, if the table goes on, at the first one's side, to where the topic ended after all was read again: the newest
record before that place was not compacted while it was read, since no later one was there. Then the rows are compared.

A process that dies before T3 leaves files that nothing names, and the next one begins anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_persist import DIFF, ERROR, FilePart, Shard, StagedFile, consolidate, read_part
from tidemark_persist.files.spill import divide, row_hash
from tidemark_persist.times import Time as PersistTime
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.kafka import KafkaTable
from tidemark_protocol.plan.successors import spec_name
from tidemark_replica.storage.errors import TableStopped
from tidemark_replica.storage.kafka.followed_topic import FollowedTopic, TopicProgress, checked
from tidemark_replica.storage.kafka.positions import Position
from tidemark_replica.storage.kafka.stop import (
    OFFSET_GONE,
    RECORDS_GONE,
    ROWS_DIFFER,
    TOO_MANY_ERRORS,
    TOPIC_REPLACED,
)
from tidemark_replica.storage.kafka.topics import Topic, Topics

RENEW_SECONDS = 3 * 3600.0
"""Older staged files are copied, so that they are young when they are bound."""
SHARE_ROWS, SHARES_MAX = 1 << 19, 256
FOR_GOOD = frozenset({RECORDS_GONE, ROWS_DIFFER, TOO_MANY_ERRORS})
"""Reasons for which a table with further columns never begins."""


class RepeatedRead:
    """The progress of one table with the records of the table before it. `position`: None before the first piece."""

    def __init__(self, topic: FollowedTopic) -> None:
        self._topic = topic
        topic.forget_counts()
        self._pieces: list[TopicProgress] = []
        self._ends: Mapping[int, int] | None = None
        """Where the topic ended after all was read again, where records were missing then."""
        self.position: Position | None = None

    def read_piece(self, lead: Position, time: Time, size: int, seconds: float, topics: Topics) -> None:
        """Reads about `size` bytes of the records before `lead`, where the table before it is, for `seconds` at most.
        Raises TableStopped, BrokersAway, RegistryAway, StorageError; the pieces of before stay."""
        position = self._next(lead)
        if position.offsets == lead.offsets or any(o > lead.offsets[p] for p, o in position.offsets.items()):
            return  # it is there, or another table was before this one until now
        self._ends = None
        try:
            found = self._topic.read(position, time, size, seconds, cut=lead.offsets)
        except TableStopped as error:
            raise records_gone(self._topic.table, str(error)) if error.reason == OFFSET_GONE else error from None
        try:
            topic = self._same_topic(lead, topics)
            if found.position.offsets == position.offsets:
                ends = topics.ends(topic)
                if any(ends.get(p, 0) < offset for p, offset in lead.offsets.items()):
                    raise records_gone(self._topic.table, "the topic ends before them")
        except BaseException:
            self._topic.discard(found)
            raise
        self.add(found)

    def add(self, piece: TopicProgress) -> None:
        """The piece is staged, up to its position."""
        self._topic.bound(Time(0))  # the shard has no rows yet, and the next piece follows on this one
        if piece.rows is not None or piece.letters is not None:
            self._pieces.append(piece)
        self.position = piece.position
        self._renew()

    @property
    def follows(self) -> bool:
        """Whether it takes the records that the table before it reads: it is where that one is, and does not begin
        yet."""
        return self._ends is not None

    def begin(self, lead: Position, letters: Shard | None, topics: Topics) -> Position | None:
        """The position at which the table begins; None where it has not read all records up to `lead`, or not enough of
        them. `letters`: the dead letters of the table before it. Raises TableStopped where they are not those that it
        has read, and compaction does not explain it; BrokersAway."""
        position = self.position
        if position is None or position.offsets != lead.offsets:
            return None
        if position.records != lead.records:
            missing = f"{lead.records} were read, and {position.records} of them are left in the topic"
            if self._topic.table.envelope != "upsert":
                raise records_gone(self._topic.table, missing)
            if self.staged()[1] or (letters is not None and rows_of(letters)):
                raise records_gone(self._topic.table, f"{missing}, and some were dead letters")
            if self._ends is None:
                ends = topics.ends(Topic(self._topic.table.topic, lead.topic_id, tuple(lead.offsets)))
                self._same_topic(lead, topics)  # afterwards: another topic of the name has other ends
                self._ends = ends
            if any(lead.offsets[p] < end for p, end in self._ends.items()):
                return None
        self._renew()
        return replace(lead, event_places=position.event_places, records=position.records)

    def staged(self) -> tuple[list[StagedFile], list[StagedFile]]:
        """The files of all pieces: of the table, and of its dead letters."""
        rows = [piece.rows for piece in self._pieces if piece.rows is not None]
        return rows, [piece.letters for piece in self._pieces if piece.letters is not None]

    def missing(self, lead: Position) -> int:
        """The number of offsets that are still to be read."""
        position = self.position or Position("", lead.begins)
        return sum(lead.offsets.values()) - sum(position.offsets.get(p, b) for p, b in lead.begins.items())

    def discard(self) -> None:
        """Deletes the staged files: no binding names them."""
        for piece in self._pieces:
            self._topic.remove(piece)
        self._pieces, self.position, self._ends = [], None, None
        self._topic.restart()

    def _same_topic(self, lead: Position, topics: Topics) -> Topic:
        """The topic, which is that of the table before it. Raises TableStopped, BrokersAway."""
        name = self._topic.table.topic
        try:
            return checked(lead, topics.describe([name])[name])
        except TableStopped as error:
            raise records_gone(self._topic.table, str(error)) if error.reason == TOPIC_REPLACED else error from None

    def _next(self, lead: Position) -> Position:
        """The position of the next piece. Raises TableStopped where not all records can be read again."""
        if (why := why_unknown(lead)) is not None:
            raise records_gone(self._topic.table, why)
        if self.position is None:
            self.position = Position(lead.topic_id, lead.begins, begins=lead.begins, records=0)
        elif new := {p: first for p, first in lead.begins.items() if p not in self.position.offsets}:
            self._topic.close()  # partitions that were added
            offsets, begins = {**self.position.offsets, **new}, {**self.position.begins, **new}
            self.position = replace(self.position, offsets=offsets, begins=begins)
        return self.position

    def _renew(self) -> None:
        self._pieces = [self._topic.renewed(piece, RENEW_SECONDS) for piece in self._pieces]


def why_unknown(lead: Position) -> str | None:
    """The reason why the records that a table has read are not known; None where they are."""
    if lead.knows_records:
        return None
    return "it passed over a gap, got partitions while rows are by key, or began with a release that did not count them"


def check_rows(before: Shard, shard: Shard, keys: list[str], staged: list[StagedFile], table: str) -> None:
    """Raises TableStopped where the updates of the staged files, in the columns of both tables, are not the rows of
    `before` at its last complete time, errors included: that one may be a later table, with further columns. Memory is
    that of a share of the keys. Raises StorageError."""
    both = [field for field in before.schema if field.name in shard.schema.names]
    schema = pa.schema([*both, pa.field(ERROR, pa.string()), pa.field(DIFF, pa.int64())])
    upper = before.refresh().upper
    shares = min(1 + (rows_of(before) + sum(file.rows for file in staged)) // SHARE_ROWS, SHARES_MAX)

    def share_of(table: pa.Table) -> np.ndarray:
        return row_hash(table.select(keys)) % np.uint64(shares)

    with (
        closing(divide(_rows_there(before, upper, schema), schema, shares, share_of)) as old,
        closing(divide(_staged(shard, staged, schema), schema, shares, share_of)) as new,
    ):
        for ours, theirs in zip(old, new, strict=True):
            left = consolidate(pa.concat_tables([schema.empty_table(), *ours, *theirs]))
            if left.num_rows:
                text = f"table {spec_name(table)} cannot begin with its further columns: {left.num_rows} rows are not"
                raise TableStopped(
                    ROWS_DIFFER,
                    f"{text} those of the table before it: a value does not fit its new column, or partitions have "
                    f"records of one key; {_for_good(table)}",
                )


def rows_of(shard: Shard) -> int:
    """The number of updates that the shard has, about."""
    upper = shard.refresh().upper
    return sum(abs(part.rows) for part in shard.snapshot_parts(upper - 1)) if upper else 0


def _rows_there(shard: Shard, upper: int, schema: pa.Schema) -> Iterator[pa.Table]:
    with shard.lease():
        for part in shard.snapshot_parts(upper - 1) if upper else ():
            for batch in read_part(part, columns=schema.names):
                yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)


def _staged(shard: Shard, staged: list[StagedFile], schema: pa.Schema) -> Iterator[pa.Table]:
    at = schema.get_field_index(DIFF)
    for file in staged:
        times = PersistTime(file.min_time), PersistTime(file.max_time + 1)
        for batch in read_part(FilePart(shard.location, file.path, *times, file.rows, file.size), columns=schema.names):
            table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            yield table.set_column(at, schema.field(at), pc.negate(table.column(DIFF)))


def records_gone(table: KafkaTable, why: str) -> TableStopped:
    """The error of a table with further columns, for this reason."""
    return TableStopped(RECORDS_GONE, f"{text_of_gone(table, why)}; {_for_good(table.name)}")


def text_of_gone(table: KafkaTable, why: str) -> str:
    """The text of a table that cannot have further columns, for this reason."""
    text = "cannot begin with its further columns: the records that it read cannot be read again"
    return f"table {spec_name(table.name)} {text}: {why}"


def _for_good(table: str) -> str:
    """The effect on readers, and the remedy: in SQL the name means the table that does not begin."""
    name = spec_name(table)
    wait = f"Dataflows that read {name} so far go on, and new readers of {name} wait for good"
    return f"{wait}: remove {name} from the spec, and add a table of another name"
